"""What `load` returns: a model with its tokenizer and its defaults of generation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints import native
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.pull import KNOWN, located
from cutaway.errors import CheckpointError, InputError
from cutaway.generation.loop import Stream
from cutaway.generation.result import Run
from cutaway.models import Transformer, build
from cutaway.tokenizers.tokenizer import Tokenizer

__all__ = ["Loaded", "load"]


@dataclass
class Loaded:
    """A model ready to run; `tokenizer` is None where the checkpoint has none, and ids are then given and returned.

    `notes` say what was assumed while reading the configuration.
    """

    model: Transformer
    tokenizer: Tokenizer | None
    path: str
    notes: dict[str, Any] = field(default_factory=dict)
    last: Stream | None = None

    @property
    def spec(self) -> spec.Model:
        return self.model.spec

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of ids [B T]."""
        with torch.no_grad():
            return self.model(ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a text as it is."""
        if self.tokenizer is None:
            raise InputError(f"{self.path}: the model has no tokenizer; give ids")
        return self.tokenizer.encode(text)

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        if self.tokenizer is None:
            raise InputError(f"{self.path}: the model has no tokenizer; ids stay ids")
        return self.tokenizer.decode(ids)

    def stream(self, text: str, seed: int = 0, **options: Any) -> Iterator[str]:
        """Pieces of the continuation, whole characters only; stop strings end it and are not shown."""
        yield from self.stream_ids(self.encode(text), seed, **options)

    def stream_ids(self, ids: list[int], seed: int = 0, **options: Any) -> Iterator[str]:
        """As `stream`, after a prompt of ids."""
        chosen = self.spec.generation.replace(**options)
        self.last = Stream(self.model, [ids], chosen, Run(seeds=seed, tokenizer=self.tokenizer))
        for token in self.last:
            if token.text:
                yield token.text

    def generate(self, text: str, seed: int = 0, **options: Any) -> str:
        """The continuation of a text; options are fields of spec.Generation (max_tokens, temperature, top_p, ...)."""
        return "".join(self.stream(text, seed, **options))

    def save(self, folder: str | Path) -> None:
        """Write spec, weights and tokenizer into a folder that `load` opens."""
        native.save(self.model, folder)
        if self.tokenizer is not None:
            self.tokenizer.save(folder)


def load(
    name: str | Path, dtype: torch.dtype = torch.float32, tokenizer: bool = True, allow_pickle: bool = False
) -> Loaded:
    """A model by name (`smollm2`), folder, GGUF file, name on the hub, preset or spec file (these two: seed 0).

    Without `tokenizer` that of the checkpoint is not read: ids are given and returned. A folder that has only pickled
    weights is refused unless `allow_pickle` says that its author is trusted.

    Raises CheckpointError where nothing of that name is there.
    """
    name = str(name)
    path = Path(name) if name in spec.names() else located(name)
    if path.is_file() and path.suffix in (".toml", ".json"):
        return Loaded(build(spec.load(path), seed=0, dtype=dtype).eval(), None, str(path))
    if path.is_dir() or path.is_file():
        opened = open_checkpoint(path, allow_pickle)
        words = opened.tokenizer() if tokenizer else None
        notes = {} if opened.config is None else opened.config.defaulted
        return Loaded(opened.load(dtype), words, str(opened.path), notes)
    if name in spec.names():
        return Loaded(build(spec.preset(name), seed=0, dtype=dtype).eval(), None, name)
    raise CheckpointError(
        f"{name}: no such model; give a known name ({', '.join(KNOWN)}), a folder, a .gguf file, "
        f"or a preset ({', '.join(spec.names()[:8])}, ...)"
    )
