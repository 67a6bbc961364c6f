"""Which tokens an answer comes from, by integrated gradients on their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.models import EncoderDecoder, Stack, Transformer
from cutaway.tap import listening
from cutaway.tracing.patching import Question, chunks
from cutaway.tracing.prompt import Prompt, check_one_row
from cutaway.tracing.record import record
from cutaway.tracing.stacks import check_token_head
from cutaway.tracing.tables import Table

TOKENS = 128
"""How many are computed at a time: each keeps what its gradient needs."""
POINTS = 4
"""Of Gauss's rule on each piece of the path."""
Baseline = int | Literal["mean", "zero"]


@dataclass(frozen=True)
class Integrated:
    """`values` [T]: what each token adds to f, those of a source first; their sum is `top` - `base` up to the gap.

    `top` is f of the prompt, `base` that of the baseline; `n_points`: how many gradients the integral took; `n_source`:
    how many of the tokens are a source's.
    """

    words: tuple[str, ...]
    values: Float[Tensor, " T"]
    top: float
    base: float
    n_points: int
    n_source: int = 0

    @property
    def gap(self) -> float:
        """How far the sum is from f(x) - f(baseline): the error of the integral."""
        return float(self.values.sum()) - (self.top - self.base)

    def table(self, what: str = "the logit") -> Table:
        """A row a token, in the order of the text."""
        note = (
            f"sum {float(self.values.sum()):.4f}; f(text) - f(baseline) is {self.top:.4f} - {self.base:.4f} = "
            f"{self.top - self.base:.4f}; gap {self.gap:.1e} after {self.n_points} gradients"
        )
        if abs(self.gap) > 0.05 * abs(self.top - self.base):
            note += "\nthe gap is large: take another baseline, or more gradients"
        title, values = f"What each token adds to {what}", self.values.tolist()
        if not self.n_source:
            rows = list(zip(self.words, values, strict=True))
            return Table(title, ("token", "adds"), rows, note, (1,), "bars")
        sides = ["source"] * self.n_source + ["target"] * (len(values) - self.n_source)
        rows = list(zip(sides, self.words, values, strict=True))
        return Table(title, ("side", "token", "adds"), rows, note, (2,), "bars")


def integrated_gradients(
    model: Transformer, prompt: Prompt, question: Question, baseline: Baseline = "mean", tolerance: float = 0.05,
    most: int = 1024,
) -> Integrated:  # fmt: skip
    """(x_t - b_t) . integral over a in [0, 1] of df(b + a (x - b)) / dx_t, for each token t.

    x are the rows of the embedding's table [T W] of the prompt, b the table's mean, 0, or the row of a token; positions
    stay. f is the question's logit, or difference of two. The values sum to f(x) - f(b): completeness. It holds on
    every piece of the path too, which tells the error of each: the path is cut where the error is large, until all
    errors together are below `tolerance` of |f(x) - f(b)|, or `most` gradients are taken. Of an encoder-decoder, source
    and target move together. (Sundararajan et al. 2017, arXiv:1703.01365.)

    Raises InputError for a model without logits of tokens, and for more than one row.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> found = integrated_gradients(model, Prompt(torch.tensor([[1, 2, 3]])), Question(5))
    >>> tuple(found.values.shape), abs(found.gap) <= 0.05 * abs(found.top - found.base)
    ((3,), True)
    """
    check_token_head(model)
    check_one_row(prompt)
    ends = _embedded(model, prompt)
    path = _Path(model, prompt, question, _starts(model, prompt, baseline, ends), ends)
    cuts = [i / 4 for i in range(5)]
    heights = path.heights(cuts)
    pieces = path.pieces(list(zip(cuts, cuts[1:], heights, heights[1:], strict=False)))
    top, base, n_points = heights[-1], heights[0], POINTS * len(pieces)
    while n_points < most:
        allowed = tolerance * abs(top - base) / len(pieces)
        bad = [piece for piece in pieces if not piece.error <= allowed]
        if sum(piece.error for piece in pieces) <= tolerance * abs(top - base) or not bad:
            break
        bad = sorted(bad, key=lambda piece: -piece.error)[: max((most - n_points) // (2 * POINTS), 1)]
        middles = [(piece.start + piece.end) / 2 for piece in bad]
        halves = [
            half
            for piece, middle, height in zip(bad, middles, path.heights(middles), strict=True)
            for half in ((piece.start, middle, piece.low, height), (middle, piece.end, height, piece.high))
        ]
        pieces = [piece for piece in pieces if piece not in bad] + path.pieces(halves)
        n_points += POINTS * len(halves)
    values = torch.stack([piece.values for piece in pieces]).sum(0)
    words = (*prompt.source_words, *prompt.words)
    return Integrated(words, values, top, base, n_points, len(prompt.source_words))


@dataclass(frozen=True, eq=False)
class _Piece:
    """From `start` to `end` of the path f goes from `low` to `high`; what each token adds to that."""

    start: float
    end: float
    low: float
    high: float
    values: Float[Tensor, " T"]

    @property
    def error(self) -> float:
        found = abs(float(self.values.sum()) - (self.high - self.low))
        return found if found == found else float("inf")


@dataclass(frozen=True)
class _Path:
    """Embeddings b + a (x - b), with a = s^3 and s from 0 to 1: a norm bends f most near 0."""

    model: Transformer
    prompt: Prompt
    question: Question
    starts: dict[str, Tensor]
    ends: dict[str, Tensor]

    def at(self, places: Sequence[float]) -> dict[str, Tensor]:
        a = torch.tensor(places, dtype=torch.float64)[:, None, None] ** 3
        return {name: self.starts[name] + a.to(x) * (x - self.starts[name]) for name, x in self.ends.items()}

    def f(self, inputs: dict[str, Tensor], n: int) -> Float[Tensor, " B"]:
        with listening(self.model, lambda name, x: inputs[name], *inputs):
            return self.question.of(self.model, self.prompt.repeated(n))

    @torch.no_grad()
    def heights(self, places: Sequence[float]) -> list[float]:
        """f at some places."""
        found = [self.f(self.at(chunk), len(chunk)) for chunk in chunks(places, self.prompt, TOKENS)]
        return torch.cat(found).tolist()

    def pieces(self, spans: Sequence[tuple[float, float, float, float]]) -> list[_Piece]:
        """The integral over each span, by Gauss's rule."""
        nodes, weights = (x.tolist() for x in np.polynomial.legendre.leggauss(POINTS))
        places, shares = [], []
        for start, end, *_ in spans:
            places += [start + (end - start) * (node + 1) / 2 for node in nodes]
            shares += [(end - start) * weight / 2 for weight in weights]
        slopes = torch.cat([self._slopes(chunk) for chunk in chunks(places, self.prompt, TOKENS)])
        steps = 3 * torch.tensor(places, dtype=torch.float64) ** 2 * torch.tensor(shares, dtype=torch.float64)
        values = (steps[:, None].to(slopes) * slopes).unflatten(0, (len(spans), POINTS)).sum(1)
        return [_Piece(*span, each) for span, each in zip(spans, values, strict=True)]

    def _slopes(self, places: Sequence[float]) -> Float[Tensor, "P T"]:
        """(x_t - b_t) . df / dx_t at each place."""
        inputs = {name: x.requires_grad_() for name, x in self.at(places).items()}
        with torch.enable_grad():
            found = torch.autograd.grad(self.f(inputs, len(places)).sum(), list(inputs.values()))
        ways = [self.ends[name] - self.starts[name] for name in inputs]
        return torch.cat([(way.double() * slope).sum(-1) for way, slope in zip(ways, found, strict=True)], 1)


def _starts(model: Transformer, prompt: Prompt, baseline: Baseline, ends: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the path begins with, at each tap."""
    if baseline == "zero":
        return {name: torch.zeros_like(x) for name, x in ends.items()}
    if baseline == "mean":
        stacks = _stacks(model)
        return {name: stacks[name].embedding.table.weight.detach().mean(0).expand_as(x) for name, x in ends.items()}
    filled = replace(
        prompt, ids=torch.full_like(prompt.ids, baseline),
        source=None if prompt.source is None else torch.full_like(prompt.source, baseline),
    )  # fmt: skip
    return _embedded(model, filled)


def _embedded(model: Transformer, prompt: Prompt) -> dict[str, Tensor]:
    """The rows of the table, at each tap."""
    with torch.no_grad(), record(model, *_stacks(model)) as run:
        prompt.run(model)
    return dict(run.items())


def _stacks(model: Transformer) -> dict[str, Stack]:
    """The stacks by the tap of what they read."""
    if isinstance(model, EncoderDecoder):
        return {"encoder.embedding.tokens": model.encoder, "decoder.embedding.tokens": model.decoder}
    return {"embedding.tokens": model}
