"""What a conversion takes from a checkpoint, tensor by tensor, and what it tells when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.export import Place, Target
from cutaway.checkpoints.opened import Opened


@dataclass
class Written:
    """What was written: the family's name, how many tensors, how many bytes, and what the reader should know."""

    path: Path
    label: str
    n_tensors: int
    n_bytes: int
    notes: list[str] = field(default_factory=list)

    def note_generation(self, before: spec.Generation, after: spec.Generation) -> None:
        """Note the defaults of generation that the format cannot say."""
        lost = [name for name, value in before if value != getattr(after, name)]
        if lost:
            self.notes.append(f"defaults of generation that are not kept: {', '.join(lost)}")


class Taken:
    """The tensors of a target, made from the source's when their turn comes."""

    def __init__(self, opened: Opened, target: Target) -> None:
        self.opened, self.target = opened, target

    def dtype(self, place: Place) -> torch.dtype:
        """The type in which a tensor comes: the widest of those it is put together from."""
        opened, names = self.opened, place.rule.ours
        pieces = {name: torch.empty(opened.shapes[name], dtype=opened.dtype(name), device="meta") for name in names}
        return self._put_together(place, pieces).dtype

    def read(self, place: Place) -> Tensor:
        """One tensor of theirs. Raises CheckpointError for a wrong shape, a NaN or an infinity."""
        return self._put_together(place, {name: self.opened.read(name) for name in place.rule.ours})

    def _put_together(self, place: Place, pieces: dict[str, Tensor]) -> Tensor:
        changed = [self.target.form.weight(name, piece) for name, piece in pieces.items()]
        common = reduce(torch.promote_types, (piece.dtype for piece in changed))
        return place.rule.write([piece.to(common) for piece in changed])
