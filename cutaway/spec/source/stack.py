"""Blocks and the loop over them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from cutaway.spec.attention import Cross, Latent, MultiHead
from cutaway.spec.block import Block, Branch, Stage
from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts
from cutaway.spec.model import Dropout
from cutaway.spec.norms import NoNorm
from cutaway.spec.positions import T5Buckets
from cutaway.spec.residual import Add
from cutaway.spec.source import attention, feedforward
from cutaway.spec.source.ends import embedding
from cutaway.spec.source.norms import norms
from cutaway.spec.source.positions import buckets
from cutaway.spec.source.writing import File, Part, module, nested, number, shape

EXTRAS = ("bias", "prefix", "kept", "memory")
"""What a block may need beside x: T5's biases, each row's prefix, keys and values lent, the encoder's states."""


class Stack:
    """The text of one stack: its attributes, and the lines that turn ids into its last states `x`."""

    def __init__(
        self, file: File, stack: Any, d_model: int, dropout: Dropout, own_table: bool = True, role: str = ""
    ) -> None:
        self.file, self.d_model, self.dropout, self.role = file, d_model, dropout, role
        self.embedding = embedding(file, stack, d_model, dropout.embedding, role, own_table)
        blocks = stack.blocks
        lenders = {part.share_kv for part in _parts(blocks) if isinstance(part, MultiHead)}
        built = [self._branches(block, index if index in lenders else None) for index, block in enumerate(blocks)]
        taken = {name for parts in built for part in parts.values() for name in part.takes}
        self.extras = tuple(name for name in EXTRAS if name in taken)
        makes = [self._block(block, parts) for block, parts in zip(blocks, built, strict=True)]
        self.attributes = [f"self.embedding = {self.embedding.make}", *_layers(makes)]
        table = next((p for p in _parts(blocks) if _relative(p)), None)
        if table is not None:
            self.attributes += [f"self.relative_bias = nn.Embedding({table.positions.n_buckets}, {table.n_heads})"]
        self.attributes += norms(file, d_model, final_norm=stack.final_norm)
        self.reads = "images" if "images" in self.embedding.takes else "ids"
        call = (
            f"self.embedding({self.reads})" if self.reads == "images" else self.embedding.call("self.embedding", "ids")
        )
        self.forward = [f"x = {call}{shape('B', 'T', d_model)}"]
        if table is not None:
            found = buckets(file, table.positions)
            self.forward += [f"bias = self.relative_bias({found}){shape('T', 'T', table.n_heads)}"]
            self.forward += [f"bias = bias.permute(2, 0, 1){shape(table.n_heads, 'T', 'T')}"]
        self.forward += ["kept = {}  # keys and values that later layers read"] if "kept" in taken else []
        self.forward += ["for block in self.blocks:", f"    x = block({', '.join(('x', *self.extras))})"]
        self.forward += [] if isinstance(stack.final_norm, NoNorm) else ["x = self.final_norm(x)"]

    @property
    def takes(self) -> list[str]:
        """What the forward takes: ids or images, and what only its caller knows."""
        given = [name for name in self.extras if name in ("prefix", "memory")]
        table = ["table"] if "table" in self.embedding.takes else []
        return [self.reads, *given, *table, *(["types=None"] if "types" in self.embedding.takes else [])]

    def _branches(self, block: Block, lends: int | None) -> dict[str, Part]:
        """The parts of a block by name; the norms around a part, and its learned scale, hang on it."""
        out: dict[str, Part] = {}
        for stage in block.stages:
            for index, branch in enumerate(stage.branches):
                around: dict[str, Any] = {"norm_in": branch.norm_in, "norm_out": branch.norm_out}
                if index == 0:
                    around |= {"norm": stage.norm, "norm_sum": stage.norm_sum}
                attributes = norms(self.file, self.d_model, **around)
                if isinstance(stage.scale, str):
                    width = 1 if stage.scale == "scalar" else self.d_model
                    attributes += [f"self.residual_scale = nn.Parameter(torch.ones({width}))"]
                out[branch.name] = self._part(branch, attributes, lends)
        return out

    def _part(self, branch: Branch, attributes: list[str], lends: int | None) -> Part:
        file, part, d_model, hidden = self.file, branch.part, self.d_model, self.dropout.hidden
        around = attention.Around(attributes, self.dropout.attention)
        match part:
            case MultiHead():
                return attention.multi_head(file, part, d_model, around, lends)
            case Latent():
                return attention.latent(file, part, d_model, around)
            case Cross():
                return attention.cross(file, part, d_model, around)
            case Dense():
                return feedforward.dense(file, part, d_model, attributes, hidden)
            case Gated():
                return feedforward.gated(file, part, d_model, attributes, hidden)
            case MixtureOfExperts():
                return feedforward.mixture(file, part, d_model, attributes, hidden)
        text = module("Gives 0, so x passes: the part was removed.", attributes, ["return torch.zeros_like(x)"])
        return Part(f"{file.define(text, 'Nothing')}()")

    def _block(self, block: Block, parts: dict[str, Part]) -> str:
        lines = [line for stage in block.stages for line in _stage(stage, parts, self.dropout.residual)]
        attributes = [f"self.{', self.'.join(parts)} = {', '.join(parts)}"]
        takes = ", ".join(("x", *self.extras))
        text = module(
            "One layer; the norms around a part hang on it.", attributes, [*lines, "return x"], takes, ", ".join(parts)
        )
        return (
            f"{self.file.define(text, 'Block', f'{self.role}Block')}({', '.join(part.make for part in parts.values())})"
        )


def _stage(stage: Stage, parts: dict[str, Part], dropout: float) -> list[str]:
    """x = norm_sum(skip + sum of scale * norm_out(part(norm_in(h)))), h = norm(x)."""
    first, residual = f"self.{stage.branches[0].name}", stage.residual
    adds, several = isinstance(residual, Add), len(stage.branches) > 1
    from_normed = isinstance(residual, Add) and residual.skip == "normed"
    lines, h = [], "x"
    if not isinstance(stage.norm, NoNorm):
        h = f"{first}.norm(x)"
        if several or from_normed:
            lines, h = [f"h = {h}"], "h"
    total = f"{h if from_normed else 'x'} + {{}}" if adds else "{}"
    if not isinstance(stage.norm_sum, NoNorm):
        total = f"{first}.norm_sum({total})"
    for branch in stage.branches:
        around = _around(branch, parts[branch.name], stage, dropout)
        lines += nested(branch.name, h, around) if several else nested("x", h, around, total)
    return lines + ([f"x = {total.format(' + '.join(b.name for b in stage.branches))}"] if several else [])


def _around(branch: Branch, part: Part, stage: Stage, dropout: float) -> list[str]:
    """What a branch does to its input, innermost first; `{}` takes what is inside."""
    name = f"self.{branch.name}"
    steps = [] if isinstance(branch.norm_in, NoNorm) else [f"{name}.norm_in({{}})"]
    steps += [part.call(name, "{}")]
    steps += [] if isinstance(branch.norm_out, NoNorm) else [f"{name}.norm_out({{}})"]
    if isinstance(stage.scale, str):
        steps += [f"{name}.residual_scale * {{}}"]
    elif stage.scale != 1.0:
        steps += [f"{number(stage.scale)} * {{}}"]
    return steps + ([f"F.dropout({{}}, {number(dropout)}, self.training)"] if dropout else [])


def _layers(makes: list[str]) -> list[str]:
    """The list of blocks: in one line where all are alike, else runs of equal ones, a repeated pattern as a loop."""
    if len(set(makes)) == 1:
        return _of_blocks("self.blocks = nn.ModuleList", makes)
    n = len(makes)
    period = next(p for p in range(1, n + 1) if all(makes[i] == makes[i % p] for i in range(n)))
    lines, times = ["self.blocks = nn.ModuleList()"], n // period
    if times == 1:
        return lines + _runs(makes)
    lines += [f"for _ in range({times}):", *(f"    {line}" for line in _runs(makes[:period]))]
    return lines + _runs(makes[period * times :])


def _runs(makes: list[str]) -> list[str]:
    return [line for _, run in groupby(makes) for line in _of_blocks("self.blocks.extend", list(run))]


def _of_blocks(function: str, run: list[str]) -> list[str]:
    """`function` of equal blocks, over several lines: a name still stands for its mark here and is longer."""
    if len(run) == 1:
        return [f"{function}([", f"    {run[0]}", "])"]
    return [f"{function}(", f"    {run[0]}", f"    for _ in range({len(run)})", ")"]


def _parts(blocks: tuple[Block, ...]) -> list[Any]:
    return [branch.part for block in blocks for branch in block.branches]


def _relative(part: Any) -> bool:
    return isinstance(part, (MultiHead, Latent)) and isinstance(part.positions, T5Buckets)
