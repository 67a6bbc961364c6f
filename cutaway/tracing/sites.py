"""Where edits are applied: at a tap, and at which heads, neurons, tokens and rows of its tensor."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from cutaway.errors import InputError

Indices = Sequence[int] | slice | None


class Site(NamedTuple):
    """The tap, which of its calls this is (0 is the first forward), the axes there, the module that has it, and the
    positions of the tokens that are read; a cross-attention's are those of the source."""

    name: str
    step: int
    axes: tuple[str, ...]
    module: nn.Module
    positions: Int[Tensor, "B T"] | None = None


@dataclass(frozen=True)
class Part:
    """Which part of a tensor an edit touches: heads, neurons (or any last-axis entries), tokens and rows; None is all.

    `tokens` are columns of the step, as in a list: -1 is the last. In a decoded step there is one.
    """

    heads: Indices = None
    neurons: Indices = None
    tokens: Indices = None
    rows: Indices = None

    def mask(self, x: Tensor, site: Site) -> Tensor:
        """True where the part is, broadcasting to x. Raises InputError for an axis that x does not have."""
        chosen = torch.ones((), dtype=torch.bool, device=x.device)
        wanted = (("heads", self.heads, ("N", "K")), ("neurons", self.neurons, "last"), ("tokens", self.tokens, ("T",)),
                  ("rows", self.rows, ("B",)))  # fmt: skip
        for what, indices, letters in wanted:
            if indices is None:
                continue
            axis = (
                x.dim() - 1 if letters == "last" else next((i for i, a in enumerate(site.axes) if a in letters), None)
            )
            if axis is None:
                raise InputError(f"edit: {site.name} [{' '.join(site.axes)}] has no {what}; choose another tap")
            one = torch.zeros(x.shape[axis], dtype=torch.bool, device=x.device)
            one[among(what, indices, len(one), site)] = True
            chosen = chosen & one.view([-1 if i == axis else 1 for i in range(x.dim())])
        return chosen


WHOLE = Part()


def numbers(what: str, given: Sequence[int] | slice, site: Site, n: int = 0) -> list[int]:
    """A slice is one of n. Raises InputError for what is no list of whole numbers: one number, fractions, a mask."""
    try:
        listed = list(range(n)[given]) if isinstance(given, slice) else list(given)
        found = [operator.index(each) for each in listed if not isinstance(each, bool)]
    except (TypeError, ValueError, RuntimeError):
        listed, found = [None], []
    if len(found) < len(listed) or (isinstance(given, Tensor) and given.dtype == torch.bool):
        raise InputError(f"edit: {what} of {site.name}: {given!r}; give a list of whole numbers, such as [0, 3]")
    return found


def among(what: str, given: Sequence[int] | slice, n: int, site: Site) -> list[int]:
    """Which of n are meant, from 0 to n - 1. Raises InputError for what is not there."""
    found = numbers(what, given, site, n)
    for i in found:
        if not -n <= i < n:
            raise InputError(f"edit: {site.name} has {n} {what}, not {i}; count from 0")
    return [i % n for i in found]
