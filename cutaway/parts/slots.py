"""What a layer may ask of a cache: its slots hold keys, values and, for all layers alike, (position, owner)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor

from cutaway.spec import Kept

FULL = "full"


@dataclass(frozen=True)
class Slots:
    """The keys of one step in the order a layer sees them: cached ones first, then this step's own.

    `owners`: which request or document a slot belongs to, -1 for padding and empty slots. `plain`: every owner is the
    same and slot s holds position s in every row, so a mask can be told from the shape alone. `packed`: a row may hold
    several documents, each of which counts its own positions.
    """

    positions: Int[Tensor, "B S"]
    owners: Int[Tensor, "B S"]
    plain: bool
    packed: bool = False


class LayerCache(Protocol):
    """The keys and values of one layer; `layout` names the slots it uses (one mask serves all layers of a layout)."""

    layout: str

    def extend(self, keys: Float[Tensor, "B K T H"], values: Float[Tensor, "B K T V"]) -> tuple[Tensor, Tensor]:
        """Write this step's keys and values; returns all that the step's queries may meet, in the order of Slots."""
        ...

    def memory(self) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, if a cross-attention has kept them."""
        ...

    def keep_memory(self, keys: Tensor, values: Tensor) -> None:
        """Keep a cross-attention's keys and values for the steps to come."""
        ...


class Cache(Protocol):
    """A whole cache as a model sees it. `length` columns are filled; `begin` announces a step, `commit` ends it."""

    length: int
    packed: bool

    def layer(self, index: int) -> LayerCache: ...

    def check(self, kept: tuple[Kept, ...]) -> None:
        """Raise InputError where it was made for other layers than those that leave `kept` in it."""
        ...

    def begin(self, new: Slots) -> dict[str, Slots]: ...

    def commit(self) -> None: ...

    def row_lengths(self) -> int | Int[Tensor, " B"]:
        """Real tokens of each row so far; one number while no row has padding."""
        ...

    def with_past(self, owners: Int[Tensor, "B T"]) -> Int[Tensor, "B S"]:
        """The owners of all columns: those that are filled, then these."""
        ...

    def count_ids(self, owners: Int[Tensor, "B T"]) -> Int[Tensor, "B S"]:
        """As `with_past` for models that count positions from ids, whose pads have the owner -1; noted at `commit`."""
        ...
