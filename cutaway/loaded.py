"""What `load` returns: a model with its tokenizer and its defaults of generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints import native
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.pull import KNOWN, alike, located
from cutaway.encoding import Pool, Rows, classes, masked, names, probabilities, vectors
from cutaway.errors import CheckpointError, InputError
from cutaway.generation.loop import Stream
from cutaway.generation.prompts import with_changes
from cutaway.generation.result import Run
from cutaway.models import Transformer, build
from cutaway.spec import Model
from cutaway.tokenizers.tokenizer import Tokenizer
from cutaway.tracing.prompt import Prompt


@dataclass(repr=False)
class Loaded:
    """A model ready to run; `tokenizer` is None where the checkpoint has none, and ids are then given and returned.

    `notes` say what was assumed while reading the configuration.

    >>> import tempfile, torch, cutaway
    >>> loaded = cutaway.load("modern-tiny")
    >>> loaded.spec.d_model, loaded(torch.tensor([[1, 2]])).shape
    (64, torch.Size([1, 2, 256]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loaded.save(folder)
    ...     cutaway.load(folder, tokenizer=False).spec == loaded.spec
    True
    """

    model: Transformer
    tokenizer: Tokenizer | None
    path: str
    notes: dict[str, Any] = field(default_factory=dict)
    last: Stream | None = None

    @property
    def spec(self) -> Model:
        return self.model.spec

    def __repr__(self) -> str:
        return f"{self._told()}\n{self.model!r}"

    def _repr_html_(self) -> str:
        return f"<div>{escape(self._told())}</div>{self.model._repr_html_()}"

    def _told(self) -> str:
        words = "no tokenizer" if self.tokenizer is None else f"a tokenizer of {self.tokenizer.vocab_size:,} tokens"
        return f"{self.path}, {words}"

    def __call__(self, ids: Tensor) -> Tensor:
        """Logits of ids [B T]."""
        with torch.no_grad():
            return self.model(ids)

    def encode(self, text: str) -> list[int]:
        """Ids of a text as it is."""
        return self._tokens().encode(text)

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""
        if self.tokenizer is None:
            raise InputError(f"{self.path}: the model has no tokenizer; ids stay ids")
        return self.tokenizer.decode(ids)

    def prompt(self, text: str | Sequence[int], target: str | Sequence[int] = ()) -> Prompt:
        """A text, or its ids, as the functions of `cutaway.tracing` read it, on the model's device.

        An encoder-decoder reads the text and writes the target.

        Raises InputError for a text without tokens, and for a target where there is no encoder.

        >>> import cutaway
        >>> cutaway.load("modern-tiny").prompt([5, 3, 9]).words
        ("'<5>'", "'<3>'", "'<9>'")
        """
        ids = self._tokens().encode(text) if isinstance(text, str) else text
        written = self._tokens().encode(target, add_special_tokens=False) if isinstance(target, str) else target
        name = "<{}>".format if self.tokenizer is None else lambda i: self.decode([i])
        if not ids:
            raise InputError("prompt: the text has no tokens; give one that has")
        row = torch.tensor([ids], device=next(self.model.parameters()).device)
        if not isinstance(self.spec, spec.EncoderDecoder):
            if written:
                raise InputError("target: the model has no encoder, it continues its text; leave the target away")
            return Prompt(row, None, name)
        if self.spec.generation.start_id == "none":
            raise InputError(f"{self.path}: its spec names no id that the decoder begins with (generation.start_id)")
        return Prompt(row.new_tensor([[self.spec.generation.start_id, *written]]), row, name)

    def stream(self, text: str, seed: int = 0, **options: Any) -> Iterator[str]:
        """Pieces of the continuation, whole characters only; stop strings end it and are not shown."""
        yield from self.stream_ids(self.encode(text), seed, **options)

    def stream_ids(self, ids: list[int], seed: int = 0, **options: Any) -> Iterator[str]:
        """As `stream`, after a prompt of ids."""
        chosen = with_changes(self.spec.generation, options)
        self.last = Stream(self.model, [ids], chosen, Run(seeds=seed, tokenizer=self.tokenizer))
        for token in self.last:
            if token.text:
                yield token.text

    def generate(self, text: str, seed: int = 0, **options: Any) -> str:
        """The continuation of a text; options are fields of spec.Generation (max_tokens, temperature, top_p, ...)."""
        return "".join(self.stream(text, seed, **options))

    def embed(self, texts: str | Sequence[str], pool: Pool | None = None, normalise: bool | None = None) -> Tensor:
        """A vector [D] of a text, or [B D] of several: pooled and normalised as the checkpoint says, else as given.

        A model that says nothing of it gives the mean over its tokens' last states. What is longer than the model's
        context is cut.
        """
        if not isinstance(texts, Sequence):
            raise InputError(f"texts: a {type(texts).__name__}; give a text, or a list of texts")
        several = [texts] if isinstance(texts, str) else list(texts)
        stack = spec.first_stack(self.spec)
        longest = None if stack.context_length == "unlimited" else stack.context_length
        rows = [self._tokens().encode(text, max_length=longest) for text in several]
        found = vectors(self.model, Rows(rows), pool, normalise)
        return found[0] if isinstance(texts, str) else found

    def fill_mask(self, text: str, n: int = 5) -> list[list[tuple[str, float]]]:
        """For each mask token in a text the n likeliest tokens and their probabilities."""
        tokenizer = self._tokens()
        if "mask" not in tokenizer.special:
            raise InputError(f"{self.path}: its tokenizer has no mask token; use a masked language model")
        found = masked(self.model, tokenizer.encode(text), tokenizer.special["mask"], n)
        return [[(tokenizer.decode([token]), share) for token, share in each] for each in found]

    def classify(self, text: str, pair: str | None = None) -> list[tuple[str, float]]:
        """The classes of a text (or of a pair of texts) with their probabilities, likeliest first.

        Raises InputError for a model that classifies tokens: take `classify_tokens`.
        """
        head = self.spec.head
        if not isinstance(head, spec.ClassHead) or head.pool == "none":
            raise InputError(f"{self.path}: its {head.kind} head gives no classes of a text")
        ids, types = (self._tokens().encode(text), None) if pair is None else self._tokens().encode_pair(text, pair)
        shares = classes(self.model, Rows([ids], None if types is None else [types]))[0].tolist()
        return sorted(zip(names(head), shares, strict=True), key=lambda each: -each[1])

    def classify_tokens(self, text: str) -> list[tuple[str, str, float]]:
        """Each token of a text with its likeliest class and that one's probability."""
        head = self.spec.head
        if not isinstance(head, spec.ClassHead) or head.pool != "none":
            raise InputError(f"{self.path}: its {head.kind} head gives no classes of tokens")
        ids = self._tokens().encode(text)
        best = classes(self.model, Rows([ids]))[0].max(-1)
        rows = zip(ids, best.indices.tolist(), best.values.tolist(), strict=True)
        return [(self._tokens().token(token), names(head)[index], share) for token, index, share in rows]

    def classify_image(self, image: Tensor) -> list[tuple[str, float]]:
        """The classes of an image [C H W] with their probabilities, likeliest first.

        Its numbers are scaled as those that the model was trained on; the folder's preprocessor_config.json says how.
        """
        head = self.spec.head
        if not isinstance(self.spec, spec.ImageEncoder) or not isinstance(head, spec.ClassHead) or head.pool == "none":
            raise InputError(f"{self.path}: it gives no classes of an image")
        shares = probabilities(head, self(image[None]))[0].tolist()
        return sorted(zip(names(head), shares, strict=True), key=lambda each: -each[1])

    def _tokens(self) -> Tokenizer:
        if isinstance(self.spec, spec.ImageEncoder):
            raise InputError(f"{self.path}: the model reads images, no texts; call it with a tensor [B C H W]")
        if self.tokenizer is None:
            raise InputError(f"{self.path}: the model has no tokenizer; give ids")
        return self.tokenizer

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

    >>> import cutaway
    >>> model = cutaway.load("smollm2")
    >>> model.generate("The capital of France is", max_tokens=2)
    ' Paris.'
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
        f"{name}: no such model{alike(name)}; give a known name ({', '.join(KNOWN)}), a folder, a .gguf file, a name "
        f"on the hub, or a preset ({', '.join(spec.presets.families())})"
    )
