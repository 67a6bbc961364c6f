"""Reversible renames: how the tensors of a foreign checkpoint become ours and back, without changing a value.

A rule takes one tensor of theirs to one or more of ours through steps that only slice, transpose, permute or reshape,
so the same rule writes what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from cutaway import spec

LAYER = re.compile(r"blocks\.(\d+)\.")


class Op(Protocol):
    """One reversible change of a list of tensors."""

    def read(self, tensors: list[Tensor]) -> list[Tensor]: ...

    def write(self, tensors: list[Tensor]) -> list[Tensor]: ...


@dataclass(frozen=True)
class Transpose:
    """[in, out] to [out, in] (GPT-2's Conv1D)."""

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.transpose(-1, -2) for x in tensors]

    write = read


@dataclass(frozen=True)
class Reshape:
    """Theirs of one shape, ours of another, the numbers in the same order."""

    theirs: tuple[int, ...]
    ours: tuple[int, ...]

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.reshape(self.ours) for x in tensors]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.reshape(self.theirs) for x in tensors]


@dataclass(frozen=True)
class Split:
    """One tensor cut along `dim` into pieces of these sizes."""

    sizes: tuple[int, ...]
    dim: int = 0

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [piece for x in tensors for piece in x.split(self.sizes, self.dim)]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        n = len(self.sizes)
        return [torch.cat(tensors[i : i + n], self.dim) for i in range(0, len(tensors), n)]


@dataclass(frozen=True)
class GroupSplit:
    """Rows in `groups` groups, each holding pieces of these sizes: q, k, v of a head together (NeoX, BLOOM, Falcon)."""

    groups: int
    sizes: tuple[int, ...]

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        (x,) = tensors
        pieces = x.unflatten(0, (self.groups, sum(self.sizes))).split(self.sizes, 1)
        return [piece.flatten(0, 1) for piece in pieces]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        pieces = [x.unflatten(0, (self.groups, size)) for x, size in zip(tensors, self.sizes, strict=True)]
        return [torch.cat(pieces, 1).flatten(0, 1)]


@dataclass(frozen=True)
class Unstack:
    """One tensor with a leading axis (experts) to one tensor each."""

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [piece for x in tensors for piece in x.unbind(0)]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        return [torch.stack(tensors)]


@dataclass(frozen=True)
class Strided:
    """Columns or rows taken in turn along `dim`: 0, n, 2n, ... then 1, n+1, ... (gpt-oss's gate and up)."""

    n: int = 2
    dim: int = 0

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.unflatten(self.dim, (-1, self.n)).select(self.dim + 1, i) for x in tensors for i in range(self.n)]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        turns = [tensors[i : i + self.n] for i in range(0, len(tensors), self.n)]
        return [torch.stack(turn, self.dim + 1).flatten(self.dim, self.dim + 1) for turn in turns]


@dataclass(frozen=True)
class Order:
    """Tensors in another order: ours number i is theirs number order[i]."""

    order: tuple[int, ...]

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[i] for i in self.order]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[self.order.index(i)] for i in range(len(tensors))]


@dataclass(frozen=True)
class PairRows:
    """Rows of each head from neighbouring pairs (theirs) to half-and-half (ours): the two layouts of RoPE."""

    n_heads: int

    def read(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.unflatten(0, (self.n_heads, -1, 2)).transpose(1, 2).flatten(0, 2) for x in tensors]

    def write(self, tensors: list[Tensor]) -> list[Tensor]:
        return [x.unflatten(0, (self.n_heads, 2, -1)).transpose(1, 2).flatten(0, 2) for x in tensors]


@dataclass(frozen=True)
class Rule:
    """Their tensor `theirs` is our tensors `ours`, through `ops` in reading order.

    A `spare` one is read only where no other rule has filled ours, and may differ from what did. A `*` in `theirs`
    stands for 0, 1, ...: tensors that are one with a leading axis here.
    """

    theirs: str
    ours: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    spare: bool = False

    def as_spare(self) -> Rule:
        """The same rule, spare."""
        return replace(self, spare=True)

    def read(self, tensor: Tensor) -> dict[str, Tensor]:
        """Our tensors from theirs."""
        tensors = [tensor]
        for op in self.ops:
            tensors = op.read(tensors)
        return dict(zip(self.ours, tensors, strict=True))

    def write(self, tensors: Sequence[Tensor]) -> Tensor:
        """Their tensor from ours."""
        back = list(tensors)
        for op in reversed(self.ops):
            back = op.write(back)
        (tensor,) = back
        return tensor.contiguous()

    def pieces(self, tensor: Tensor) -> dict[str, Tensor]:
        """What `write` gave, under the names that it has in a file."""
        if "*" not in self.theirs:
            return {self.theirs: tensor}
        return {self.theirs.replace("*", str(i)): piece for i, piece in enumerate(tensor.unbind(0))}


def same(theirs: str, ours: str, *ops: Op) -> Rule:
    """A rule from one tensor to one."""
    return Rule(theirs, (ours,), ops)


def linear(theirs: str, ours: str, bias: bool, *ops: Op) -> list[Rule]:
    """The weight of a linear map, and its bias where it has one; `ops` act on the rows of both."""
    names = ("weight", "bias") if bias else ("weight",)
    return [same(f"{theirs}.{name}", f"{ours}.{name}", *ops) for name in names]


def fused(theirs: str, ours: Sequence[str], op: Op, bias: bool) -> list[Rule]:
    """One matrix that holds several of ours, rows cut by `op`; the bias is cut alike."""
    names = ("weight", "bias") if bias else ("weight",)
    return [Rule(f"{theirs}.{name}", tuple(f"{each}.{name}" for each in ours), (op,)) for name in names]


def renames(record: spec.Model, table: Mapping[str, str], top: str = "") -> list[Rule]:
    """A rule for each weight of the record whose path is in the table (ours to theirs, `top` before theirs).

    `*` stands for the number of a layer, and weight and bias keep their names.

    >>> [rule.theirs for rule in renames(spec.preset("gpt2"), {"final_norm": "ln_f"}, "transformer.")]
    ['transformer.ln_f.weight', 'transformer.ln_f.bias']
    """
    rules = []
    for name in spec.weights(record):
        path, _, leaf = name.rpartition(".")
        number = LAYER.search(path)
        theirs = table.get(LAYER.sub("blocks.*.", path))
        if theirs is not None:
            rules.append(same(f"{top}{theirs}.{leaf}".replace("*", number[1] if number else "*"), name))
    return rules
