"""What a neuron answers to: the tokens of a text at which its output is largest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import torch
from torch import Tensor

from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.tap import listening
from cutaway.tracing.prompt import Prompt, check_one_row
from cutaway.tracing.stacks import check_layer, stack_of
from cutaway.tracing.tables import Table, readable

BEFORE, AFTER = 8, 4
"""Tokens of context that are kept around one."""


@dataclass(frozen=True)
class Hit:
    """A neuron's output at one token, the `place`-th of the text; `before` and `after` are the ids around it."""

    value: float
    place: int
    token: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Activations:
    """The largest outputs of a neuron over a text, largest first, and its mean, range and share above 0 over all."""

    layer: int
    neuron: int
    hits: tuple[Hit, ...]
    n_tokens: int
    mean: float
    low: float
    high: float
    positive: float

    def table(self, name: Callable[[int], str]) -> Table:
        """A row a hit; `name`: the text of an id."""
        rows = [
            (_line(name, hit.before)[-32:], repr(name(hit.token)), _line(name, hit.after)[:18], hit.value)
            for hit in self.hits
        ]
        note = (
            f"{self.n_tokens:,} tokens: mean {self.mean:.3f}, {self.low:.3f} to {self.high:.3f}, "
            f"above 0 at {100 * self.positive:.1f}%"
        )
        title = f"Layer {self.layer}, neuron {self.neuron}: tokens where it is largest"
        return Table(title, ("before", "token", "after", "output"), rows, note, (3,), "bars", right=(0,))


def top_activations(
    model: Transformer, prompts: Iterable[Prompt], layer: int, neuron: int, top: int = 20, encoder: bool = False
) -> Activations:
    """The `top` largest values of `ffn.hidden` of one neuron over prompts, each read afresh.

    Only the hits are kept, so a text of any length can be read. Equal values: the earlier token first. `encoder`: of
    the encoder of an encoder-decoder, at the tokens of the sources.

    Raises InputError for a layer or neuron that is not there, a layer of experts, and a text without tokens.
    """
    stack, prefix = stack_of(model, encoder)
    check_layer(stack, layer)
    tap, hits = f"{prefix}blocks.{layer}.ffn.hidden", list[Hit]()
    total, positive, n, low, high = 0.0, 0, 0, float("inf"), -float("inf")
    for prompt in prompts:
        check_one_row(prompt)
        window = (prompt.source if encoder and prompt.source is not None else prompt.ids)[0].tolist()
        values = _outputs(model, prompt, tap, neuron)
        for at in values.argsort(descending=True, stable=True)[:top].tolist():
            before, after = window[max(at - BEFORE, 0) : at], window[at + 1 : at + 1 + AFTER]
            hits.append(Hit(float(values[at]), n + at, window[at], tuple(before), tuple(after)))
        hits = sorted(hits, key=lambda hit: -hit.value)[:top]  # stable: of equal ones the earlier stays first
        total, positive, n = total + float(values.sum()), positive + int((values > 0).sum()), n + len(values)
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    if not n:
        raise InputError("neuron: the text has no tokens; give one that has")
    return Activations(layer, neuron, tuple(hits), n, total / n, low, high, positive / n)


def windows_of(
    file: TextIO, encode: Callable[[str], list[int]], size: int, n_letters: int = 1 << 16
) -> Iterator[list[int]]:
    """A text file as windows of at most `size` ids. It is read a piece at a time, cut where a line or a word ends."""
    rest = ""
    while piece := file.read(n_letters):
        rest += piece
        cut = max(rest.rfind("\n"), rest.rfind(" "))
        if cut <= 0 and len(rest) < 16 * n_letters:
            continue  # within a word, unless it is no word at all
        cut = cut if cut > 0 else len(rest)
        yield from _cut(encode(rest[:cut]), size)
        rest = rest[cut:]
    yield from _cut(encode(rest), size) if rest else ()


def _cut(ids: list[int], size: int) -> Iterator[list[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _outputs(model: Transformer, prompt: Prompt, tap: str, neuron: int) -> Tensor:
    """The neuron's output at each token."""
    heard: list[Tensor] = []

    def hear(name: str, x: Tensor) -> None:
        if not 0 <= neuron < x.shape[-1]:
            raise InputError(f"neuron {neuron}: {tap} has neurons 0 to {x.shape[-1] - 1}")
        heard.append(x[0, :, neuron].double())

    with torch.no_grad(), listening(model, hear, tap):
        prompt.states(model, tap.startswith("encoder."))
    if not heard:
        raise InputError(f"{tap}: no such tap, since the layer has experts or no feed-forward network; choose another")
    return heard[0]


def _line(name: Callable[[int], str], ids: Sequence[int]) -> str:
    """Tokens as one line of text."""
    return readable("".join(name(i) for i in ids).replace("\n", "⏎").replace("\t", " ").replace("\r", ""))
