"""A model as an outline: each part in words, with its parameters, its cost and the shapes of its weights."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from cutaway.spec import words
from cutaway.spec.block import Block
from cutaway.spec.checks import problems
from cutaway.spec.count import PartCount, count
from cutaway.spec.facts import KINDS, block_facts
from cutaway.spec.model import Model, stacks
from cutaway.spec.weights import Shapes, part_weights

TOKENS = 1024
TOGETHER = "\xa0"  # between a name and its shape, which one line holds


@dataclass(frozen=True)
class Entry:
    """A part: `name`, `figures` beside it, `text` in words, `shapes` of its weights, and the parts in it."""

    name: str
    figures: str = ""
    text: str = ""
    shapes: str = ""
    inner: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        indent = "  " * depth
        yield f"{indent}{self.name}  {self.figures}".rstrip()
        for text in (self.text, self.shapes):
            yield from (f"{indent}    {line}" for line in filled(text, 100 - 2 * depth))
        for each in self.inner:
            yield from each._lines(depth + 1)

    def _repr_html_(self) -> str:
        """Nested parts that open and close, without a script; colours are those of the page around."""
        head = f"<b>{escape(self.name)}</b> <span style='opacity:.75'>{escape(self.figures)}</span>"
        told = f"<div>{escape(self.text)}</div>" if self.text else ""
        told += f"<div style='opacity:.75;font-size:90%'>{escape(self.shapes)}</div>" if self.shapes else ""
        told += "".join(each._repr_html_() for each in self.inner)
        style = "margin:.15em 0 .15em 1.2em;text-align:left"
        if not told:
            return f"<div style='{style}'>{head}</div>"
        body = f"<div style='margin-left:1.2em'>{told}</div>"
        return f"<details open style='{style}'><summary style='cursor:pointer'>{head}</summary>{body}</details>"


def filled(text: str, width: int) -> list[str]:
    """A text in lines of at most `width`, a name beside its shape."""
    return [line.replace(TOGETHER, " ") for line in textwrap.wrap(text, width)]


def outline(record: Model, stored: str = "float32") -> Entry:
    """The whole model; `stored`: what its weights are stored as. Of parts that do not fit together, what is wrong.

    >>> from cutaway.spec.presets import preset
    >>> [each.name for each in outline(preset("gpt2")).inner]
    ['embedding', 'blocks 0 to 11, alike', 'final_norm', 'head']
    """
    name = record.name or record.kind
    if wrong := problems(record):
        return Entry(
            name, "parts that do not fit together", "; ".join(f"{each.path}: {each.message}" for each in wrong)
        )
    return _Outline(record, stored).whole(name)


class _Outline:
    def __init__(self, record: Model, stored: str) -> None:
        cost = count(record, tokens=TOKENS, dtype=stored)
        self.record, self.held, self.stored = record, part_weights(record), stored
        self.parameters, self.weight_bytes, self.tokens = cost.parameters, cost.weight_bytes, cost.tokens
        self.costs: dict[str, PartCount] = {part.path: part for part in cost.parts}

    def whole(self, name: str) -> Entry:
        inner: list[Entry] = []
        for prefix, stack in stacks(self.record).items():
            parts = tuple(self.stack(prefix, stack))
            inner += [Entry(prefix.rstrip("."), inner=parts)] if prefix else parts
        inner.append(self.part("head", words.head(self.record.head)))
        size = words.scaled(self.weight_bytes, "B")
        figures = f"{KINDS[self.record.kind]}, {words.counted(self.parameters)} parameters, {size} in {self.stored}"
        return Entry(name, figures, inner=tuple(inner))

    def stack(self, prefix: str, stack: Any) -> Iterator[Entry]:
        said = words.embedding(stack.embedding, self.record.d_model)
        norm, places = said["embedding norm"], said["positions"]
        text = words.joined(said["embedding"], places, "" if norm == "none" else norm)
        yield self.part(f"{prefix}embedding", text)
        for _, run in groupby(enumerate(stack.blocks), key=lambda pair: pair[1]):
            yield self.blocks(prefix, list(run))
        if self.held[f"{prefix}relative_bias"]:
            yield self.part(f"{prefix}relative_bias", "the table of T5 biases that all layers read")
        yield self.part(f"{prefix}final_norm", words.norm(stack.final_norm))

    def blocks(self, prefix: str, run: list[tuple[int, Block]]) -> Entry:
        (first, block), times = run[0], len(run)
        paths = [f"{prefix}blocks.{first}.{branch.name}" for branch in block.branches]
        each = words.counted(sum(self.costs[path].parameters for path in paths))
        name = f"blocks {first} to {run[-1][0]}, alike" if times > 1 else f"block {first}"
        facts = block_facts(block, self.record.d_model)
        norms = "no norms" if facts["norm"] == "none" else f"{facts['norm']} {facts['norm placement']}"
        told = "" if facts["residual"] == "x + the branch" else f"residual {facts['residual']}"
        parts = [
            self.part(path, words.part(branch.part, self.record.d_model))
            for path, branch in zip(paths, block.branches, strict=True)
        ]
        figures = f"{each} each" if times > 1 else each
        return Entry(name, figures, words.joined(facts["order"], norms, told), inner=tuple(parts))

    def part(self, path: str, text: str) -> Entry:
        """One part: its parameters and cost, what it is, and its weights by shape."""
        cost = self.costs[path]
        work = [f"{words.scaled(cost.forward_flops / self.tokens, 'FLOP')} a token"] if cost.forward_flops else []
        work += [f"{cost.cache_bytes_per_token:,.0f} bytes of cache a token"] if cost.cache_bytes_per_token else []
        figures = ", ".join([words.counted(cost.parameters), *work])
        return Entry(path.rsplit(".", 1)[-1], figures, text, _shapes(self.held[path]))


def _shapes(held: Shapes) -> str:
    """Weights by shape in one line, those of experts once."""
    alike = {name: shape for name, shape in held.items() if not name.startswith("experts.") or ".0." in name}
    return ", ".join(
        f"{name.removesuffix('.weight').replace('experts.0.', 'experts.*.')}{TOGETHER}{'×'.join(map(str, shape))}"
        for name, shape in alike.items()
    )
