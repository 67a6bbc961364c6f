"""How much edits changed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool
from torch import Tensor


def alike(a: Tensor, b: Tensor) -> Bool[Tensor, "*B"]:
    """Where two tensors have the same number, or both NaN."""
    return (a == b) | (a.isnan() & b.isnan())


@dataclass
class Change:
    """What edits did: calls, and the Euclidean norms of the difference and of the tensor before, over all calls.

    Entries of -inf, as scores that are hidden, count as 0.
    """

    calls: int = 0
    difference: float = 0.0
    before: float = 0.0

    def count(self, old: Tensor, new: Tensor) -> None:
        wide = torch.float64 if old.dtype == torch.float64 else torch.float32
        self.calls += 1
        old, new = (x.detach().to(wide) for x in (old, new))
        old, new = (torch.where(x == -torch.inf, 0.0, x) for x in (old, new))
        apart = torch.where(alike(old, new), 0.0, new - old)
        self.difference = (self.difference**2 + float(apart.norm()) ** 2) ** 0.5
        self.before = (self.before**2 + float(old.norm()) ** 2) ** 0.5


@dataclass
class Report:
    """What was changed: at each tap, and by each edit, named as it was given, at all its taps."""

    changes: dict[str, Change] = field(default_factory=dict)
    edits: dict[str, Change] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [
            f"{name}: {c.calls} call{'s' * (c.calls != 1)}, changed by {c.difference:.3g} of {c.before:.3g}"
            for name, c in self.changes.items()
        ]
        return "\n".join(rows) or "nothing was edited"
