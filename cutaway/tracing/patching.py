"""Activation patching: where does what one prompt says and another does not pass through the model?

What a clean run holds at one place is put into a corrupted run; where that brings the clean answer back, the difference
between the two passes. (Meng et al. 2022, arXiv:2202.05262; Wang et al. 2022, arXiv:2211.00593; Heimersheim and Nanda
2024, arXiv:2404.15255.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.tap import listening
from cutaway.tracing.prompt import Prompt, check_asked, check_one_row
from cutaway.tracing.record import Recording, record
from cutaway.tracing.stacks import gate_of, stack_of, written_by_heads
from cutaway.tracing.tables import Grid

T = TypeVar("T")
What = Literal["stream", "attn", "cross", "ffn", "head"]
TOKENS = 512
"""How many are computed at a time."""


@dataclass(frozen=True)
class Question:
    """The logit of the token `right` after the token at `position`, less that of `wrong` where one is given."""

    right: int
    wrong: int | None = None
    position: int = -1

    def of(self, model: Transformer, prompt: Prompt) -> Float[Tensor, " B"]:
        """Of each row. Raises InputError for a token or a position that is not there."""
        check_asked(model, prompt, self.position, self.right, self.wrong)
        last = self.position in (-1, prompt.ids.shape[1] - 1)
        logits = prompt.run(model, last)[:, -1 if last else self.position].double()
        return logits[:, self.right] - (0.0 if self.wrong is None else logits[:, self.wrong])


@dataclass(frozen=True)
class Place:
    """One entry of a tap: what stands there in one run is put into another. `index` is without the batch axis."""

    tap: str
    index: tuple[int | slice, ...]


@dataclass(frozen=True)
class Sweep:
    """`effects` [R C]: (patched - corrupted) / (clean - corrupted), so 1 brings the clean answer back and 0 changes
    nothing; `clean` and `corrupted` are the logit differences of the two runs.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    axes: tuple[str, str]
    effects: Float[Tensor, "R C"]
    clean: float
    corrupted: float

    def grid(self) -> Grid:
        """As a heat map."""
        note = (
            f"logit difference: clean {self.clean:.3f}, corrupted {self.corrupted:.3f}; "
            "1 is as clean, 0 as corrupted"
        )  # fmt: skip
        return Grid(self.title, self.rows, self.columns, self.effects, self.axes, note)


@dataclass(frozen=True)
class Runs:
    """A clean and a corrupted run: what each held at some taps, and its answer."""

    clean: Recording
    corrupted: Recording
    top: float
    low: float

    @classmethod
    @torch.no_grad()
    def of(cls, model: Transformer, clean: Prompt, corrupted: Prompt, question: Question, *taps: str) -> Runs:
        """Raises InputError for prompts that cannot be compared, and answers that are alike."""
        check_comparable(clean, corrupted)
        with record(model, *taps) as held:
            top = float(question.of(model, clean))
        with record(model, *taps) as base:
            low = float(question.of(model, corrupted))
        if not math.isfinite(top - low):
            raise InputError(
                f"patch: the logit difference is {top} on the clean prompt, {low} on the corrupted; `trace numerics` "
                "finds the first tensor that is not finite"
            )
        if abs(top - low) < 1e-6 * max(abs(top), abs(low), 1.0):  # then an effect has no unit
            raise InputError(
                f"patch: the logit difference is {top:.4f} on both prompts, so nothing can be brought back; choose "
                "prompts or answers that the model tells apart"
            )
        return cls(held, base, top, low)

    def sweep(
        self, title: str, names: Sequence[str], answers: Callable[[Sequence[Place]], Tensor],
        tokens: tuple[str, ...] = (),
    ) -> Sweep:  # fmt: skip
        """A row a tap, a column an entry of its first axis but the batch's: tokens, else heads.

        `answers` tells that of each place alone.
        """
        widths = [self.clean[name].shape[1] if name in self.clean else 0 for name in names]
        places = [Place(name, (i,)) for name, width in zip(names, widths, strict=True) for i in range(width)]
        if not places:
            raise InputError(f"{title}: there is no such place; choose another receiver")
        cells = [(names.index(place.tap), *place.index) for place in places]
        effects = torch.full((len(names), max(widths)), torch.nan, dtype=torch.float64)
        effects[tuple(torch.tensor(cells).T)] = (answers(places).cpu() - self.low) / (self.top - self.low)
        rows, heads = tuple(map(str, range(len(names)))), tuple(map(str, range(max(widths))))
        axes = ("layer", "token" if tokens else "head")
        return Sweep(title, rows, tokens or heads, axes, effects, self.top, self.low)


def patch_sweep(
    model: Transformer, clean: Prompt, corrupted: Prompt, question: Question, what: What = "stream",
    encoder: bool = False,
) -> Sweep:  # fmt: skip
    """Patch each place of a kind in turn from the clean run into the corrupted one.

    `stream` (before each block), `attn`, `cross` and `ffn` (what the branch adds): layer by position. `head`: what each
    head of self-attention gives at all positions, layer by head. `encoder`: of the encoder of an encoder-decoder.

    Raises InputError for prompts of unequal length, runs that the question does not tell apart, models without logits
    of tokens, and `cross` of a stack that has none.
    """
    stack, prefix = stack_of(model, encoder)
    if what == "cross" and not any("cross" in block._modules for block in stack.blocks):
        reads = "an encoder" if encoder else "a model of one stack" if not prefix else "this decoder"
        raise InputError(f"patch: cross: {reads} has no cross-attention; patch stream, attn, ffn or head")
    tap = {"stream": "resid_pre", "head": "attn.z"}.get(what, f"{what}.update")
    taps = written_by_heads(stack, prefix) if what == "head" else [f"{prefix}blocks.*.{tap}"]
    runs = Runs.of(model, clean, corrupted, question, *taps)
    words, base = (clean.source_words, corrupted.source_words) if encoder else (clean.words, corrupted.words)
    tokens = tuple(a if a == b else f"{a}/{b}" for a, b in zip(words, base, strict=True)) if what != "head" else ()
    names = [f"{prefix}blocks.{i}.{tap}" for i in range(len(stack.blocks))]
    title = f"Patching {prefix}{tap} from clean into corrupted"
    return runs.sweep(title, names, lambda places: patched(model, corrupted, question, places, runs.clean), tokens)


@torch.no_grad()
def patched(
    model: Transformer, base: Prompt, question: Question, places: Sequence[Place], held: Recording
) -> Float[Tensor, " P"]:
    """The question's answer on `base` with each place alone filled from the recording.

    The places are rows of a batch: each row has one of them changed.
    """
    found = []
    for chunk in chunks(places, base):
        rows: dict[str, list[tuple[int, Place]]] = {}
        for row, place in enumerate(chunk):
            for tap in (place.tap, gate_of(place.tap)):
                if tap in held.taken:
                    rows.setdefault(tap, []).append((row, place))

        def put(name: str, x: Tensor, rows: dict[str, list[tuple[int, Place]]] = rows) -> Tensor:
            x = x.clone()
            for row, place in rows[name]:
                x[row, *place.index] = held[name][0, *place.index]
            return x

        with listening(model, put, *rows):
            found.append(question.of(model, base.repeated(len(chunk))))
    return torch.cat(found)


def chunks(items: Sequence[T], prompt: Prompt, n_tokens: int = TOKENS) -> list[Sequence[T]]:
    """The items in batches: as many rows of a prompt as have `n_tokens` together."""
    size = max(n_tokens // max(prompt.ids.shape[1], 0 if prompt.source is None else prompt.source.shape[1]), 1)
    return [items[start : start + size] for start in range(0, len(items), size)]


def check_comparable(clean: Prompt, corrupted: Prompt) -> None:
    """Raise InputError unless there is one row of each, with equally many tokens."""
    for prompt in (clean, corrupted):
        check_one_row(prompt)
    for what, a, b in (("", clean.ids, corrupted.ids), ("source ", clean.source, corrupted.source)):
        if a is not None and b is not None and a.shape != b.shape:
            raise InputError(
                f"patch: the clean {what}prompt has {a.shape[1]} tokens, the corrupted one {b.shape[1]}; give texts of "
                "equally many, so that positions correspond"
            )
