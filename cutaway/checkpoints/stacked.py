"""Tensors that lie apart in a file and are one of ours: a `*` in the name of a rule is their number, from 0 on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from cutaway.checkpoints.fill import Source
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError


class Stacked:
    """A source in which tensors with numbers in their names are one tensor with a leading axis."""

    def __init__(self, source: Source, groups: Mapping[str, list[str]]) -> None:
        self.source, self.groups, self.where = source, groups, source.where

    def names(self) -> Iterable[str]:
        """The names of all tensors, those of a group once."""
        members = {own for group in self.groups.values() for own in group}
        return [*self.groups, *(own for own in self.source.names() if own not in members)]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        group = self.groups.get(name)
        return self.source.shape(name) if group is None else (len(group), *self.source.shape(group[0]))

    def dtype(self, name: str) -> torch.dtype | None:
        """The type in which the file holds a tensor."""
        return self.source.dtype(self.groups.get(name, [name])[0])

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        """A tensor, in `out` when that is given."""
        if name not in self.groups:
            return self.source.read(name, out)
        return torch.stack([self.source.read(own) for own in self.groups[name]], out=out)

    def drop(self) -> None:
        """Give back the memory of what was read."""
        self.source.drop()


def stacked(source: Source, rules: list[Rule], renamed: Callable[[str], str]) -> Source:
    """The source as rules with a `*` see it; raises CheckpointError where a number is left out."""
    groups: dict[str, list[str]] = {}
    for rule in rules:
        if "*" not in rule.theirs:
            continue
        pattern = re.compile(re.escape(renamed(rule.theirs)).replace(r"\*", r"(\d+)"))
        found = {int(hit[1]): own for own in source.names() if (hit := pattern.fullmatch(renamed(own)))}
        if sorted(found) != list(range(len(found))):
            raise CheckpointError(f"{source.where}: of {rule.theirs} there are the numbers {sorted(found)} only")
        if found:
            groups[rule.theirs] = [found[i] for i in range(len(found))]
    return Stacked(source, groups) if groups else source
