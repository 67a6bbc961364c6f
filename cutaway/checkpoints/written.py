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
from cutaway.checkpoints.weights import check_finite
from cutaway.errors import CheckpointError

__all__ = ["Taken", "Written"]

DROP_AFTER = 1 << 26
"""Bytes read before their memory is given back."""


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
        self.opened, self.target, self.n_read = opened, target, 0
        self.shapes = spec.weights(opened.record)

    def dtype(self, place: Place) -> torch.dtype:
        """The type in which a tensor comes: the widest of those it is put together from."""
        return self._put_together(
            place,
            {
                name: torch.empty(self.shapes[name], dtype=self.opened.dtype(name), device="meta")
                for name in place.rule.ours
            },
        ).dtype

    def read(self, place: Place) -> Tensor:
        """One tensor of theirs. Raises CheckpointError for a NaN or an infinity."""
        if self.n_read > DROP_AFTER:
            self.opened.drop()
            self.n_read = 0
        pieces = {}
        for name in place.rule.ours:
            pieces[name] = self.opened.read(name)
            own = self.opened.origin(name)[0]
            if tuple(pieces[name].shape) != self.shapes[name]:
                raise CheckpointError(
                    f"{self.opened.path}: {own} gives {name} of shape {tuple(pieces[name].shape)}, "
                    f"the configuration asks for {self.shapes[name]}"
                )
            check_finite(pieces[name], own, str(self.opened.path))
            self.n_read += pieces[name].nbytes
        return self._put_together(place, pieces)

    def _put_together(self, place: Place, pieces: dict[str, Tensor]) -> Tensor:
        changed = [self.target.form.weight(name, piece) for name, piece in pieces.items()]
        common = reduce(torch.promote_types, (piece.dtype for piece in changed))
        return place.rule.write([piece.to(common) for piece in changed])
