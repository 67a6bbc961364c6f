"""A checkpoint of any format whose description is read and none of whose weights are yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints import gguf_model, hf, native
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import family_of, gguf_of
from cutaway.checkpoints.fill import Match, Source, fill, match, pieces
from cutaway.checkpoints.gguf import GGUF
from cutaway.checkpoints.gguf_keys import FACTORS
from cutaway.checkpoints.rules import Rule, same
from cutaway.checkpoints.weights import open_weights
from cutaway.errors import CheckpointError
from cutaway.models import Transformer, build, check_dtype
from cutaway.tokenizers.from_gguf import from_gguf
from cutaway.tokenizers.load import from_folder
from cutaway.tokenizers.tokenizer import Tokenizer

WEIGHTS = (".safetensors", ".bin", ".gguf")
READ = (".json", ".txt", ".model", ".jinja", ".toml", *WEIGHTS)
"""Endings of the files that are read in a folder."""
MOST = {"config.json": 1 << 22, "generation_config.json": 1 << 22, "spec.toml": 1 << 22}
MOST_OF_OTHERS = 1 << 27
"""Bytes of a text; the largest vocabularies take a quarter of this."""
DROP_AFTER = 1 << 26
"""Bytes read one by one before their memory is given back."""


@dataclass
class Opened:
    """`label` is the model type or architecture that the checkpoint names, empty for our own format.

    `config` tells what became of its keys, None for our own format. The tensors are found by `rules` (see `match`).
    """

    path: Path
    format: Literal["hf", "gguf", "native"]
    record: spec.Model
    rules: list[Rule]
    open_source: Callable[[], Source]
    label: str = ""
    config: Config | None = None
    ignored: tuple[str, ...] = ()
    renamed: Callable[[str], str] = str
    file: GGUF | None = None
    _last: tuple[str, dict[str, Tensor]] = field(default=("", {}), repr=False)
    _n_read: int = 0

    @cached_property
    def source(self) -> Source:
        """The tensors, their files opened when this is first asked for."""
        return self.open_source()

    @cached_property
    def match(self) -> Match:
        """Which tensor of the checkpoint each of ours is. Raises CheckpointError for missing and unknown ones."""
        return match(self.record, self.source, self.rules, self.ignored, self.renamed)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Our weights by name, with their shapes."""
        return spec.weights(self.record)

    @cached_property
    def _by_ours(self) -> dict[str, tuple[str, Rule]]:
        return self.match.by_ours()

    def origin(self, name: str) -> tuple[str, Rule]:
        """The tensor of the checkpoint that holds one of ours, and the rule that reads it."""
        return self._by_ours[name]

    def dtype(self, name: str) -> torch.dtype:
        """The type in which one of our weights is stored; packed blocks count as float32."""
        return self.source.dtype(self.origin(name)[0]) or torch.float32

    def read(self, name: str) -> Tensor:
        """One of our weights in the stored type; it may lie on the file's own memory, which is given back in time.

        Raises CheckpointError for another shape than the spec's and for a NaN or an infinity.
        """
        own, rule = self.origin(name)
        if self._last[0] != own:
            if self._n_read > DROP_AFTER:
                self.drop()
            self._last = (own, pieces(self.source, own, rule, self.shapes))
            self._n_read += sum(piece.nbytes for piece in self._last[1].values())
        return self._last[1][name]

    def drop(self) -> None:
        """Forget what was read; a tensor that is still held is read again where it is used."""
        self._last, self._n_read = ("", {}), 0
        self.source.drop()

    def load(self, dtype: torch.dtype = torch.float32) -> Transformer:
        """The whole model."""
        check_dtype(dtype)
        model = build(self.record)
        fill(model, self.source, self.match, dtype)
        return model.eval()

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, None where the checkpoint has none."""
        if self.file is None:
            return from_folder(self.path)
        values = self.file.values
        return (
            from_gguf(values, str(self.path)) if values.get("tokenizer.ggml.model", "no_vocab") != "no_vocab" else None
        )


def open_checkpoint(path: str | Path, allow_pickle: bool = False) -> Opened:
    """A folder of ours or of Hugging Face's, a GGUF file, or a folder with one GGUF file and no configuration.

    Raises CheckpointError for what is none of these and for a description that is not understood.
    """
    path = Path(path)
    if path.is_dir():
        _check_files(path)
    if (path / native.SPEC).is_file():
        record = spec.load(path / native.SPEC)
        rules = [same(name, name) for name in spec.weights(record)]
        return Opened(path, "native", record, rules, lambda: open_weights(path))
    if path.is_dir() and not (path / "config.json").is_file() and len(files := sorted(path.glob("*.gguf"))) == 1:
        path = files[0]
    if path.suffix == ".gguf" and path.is_file():
        file = GGUF(path)
        record, config = gguf_model.read_spec(file)
        described = gguf_of(file.values["general.architecture"], str(path))
        return Opened(
            path, "gguf", record, described.rules(record), lambda: gguf_model.GgufSource(file),
            described.architecture, config, tuple(FACTORS.values()), file=file,
        )  # fmt: skip
    if path.is_dir():
        record, config = hf.read_spec(path)
        family = family_of(config.data["model_type"], config.where)
        rules = hf.rules_of(family, record)
        return Opened(
            path, "hf", record, rules, lambda: hf.open_source(path, config, rules, allow_pickle),
            config.data["model_type"], config, family.ignored_tensors, family.bare,
        )  # fmt: skip
    raise CheckpointError(f"{path}: no model folder and no .gguf file; check the path")


def _check_files(folder: Path) -> None:
    """Raise CheckpointError for a link that leads out of the folder, and for a text too large to be one.

    The files of the hub's cache are links into the folder beside it.
    """
    home = folder.resolve()
    allowed = home.parents[1] if home.parent.name == "snapshots" else home
    for path in [*folder.iterdir(), *folder.glob("*/*")]:
        if path.suffix not in READ:
            continue
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(allowed):
            raise CheckpointError(f"{path}: it is a link out of the folder; put the file itself there")
        most = MOST.get(path.name, MOST_OF_OTHERS)
        if path.suffix not in WEIGHTS and path.is_file() and (size := path.stat().st_size) > most:
            raise CheckpointError(f"{path}: it has {size} bytes, at most {most} are accepted; fetch the file again")
