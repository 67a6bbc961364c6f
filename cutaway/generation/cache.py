"""Keys and values of the tokens already read: a value that the caller owns and hands to the model at each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.masks import visible
from cutaway.parts.slots import FULL, Slots

Kind = Literal["growing", "fixed", "ring"]


@dataclass(frozen=True)
class Turn:
    """The columns [B N] of a step that a ring takes into the slots [B N], N the fewer of columns and slots.

    `real`: which of them are written (None: all); where a row has fewer tokens than N, the other slots stay as they
    are. So what is written has one shape whatever the rows hold, and compiled code need not look.
    """

    row: Int[Tensor, "B 1"]
    column: Int[Tensor, "B N"]
    slot: Int[Tensor, "B N"]
    real: Bool[Tensor, "B N"] | None

    def write(self, ring: Int[Tensor, "B W"], new: Int[Tensor, "B T"]) -> Int[Tensor, "B W"]:
        """The positions or owners of a ring, with the new ones in their place."""
        taken = new[self.row, self.column]
        if self.real is not None:
            taken = torch.where(self.real, taken, ring[self.row, self.slot])
        return ring.scatter(1, self.slot, taken)

    def write_heads(self, ring: Float[Tensor, "B K W H"], new: Float[Tensor, "B K T H"]) -> None:
        """Write keys or values in their place."""
        taken = new[self.row, :, self.column]  # B N K H
        if self.real is not None:
            taken = torch.where(self.real[:, :, None, None], taken, ring[self.row, :, self.slot])
        ring[self.row, :, self.slot] = taken


class Cache:
    """One `LayerCache` a block, and for all of them which position and owner stands in each slot.

    `growing` doubles its buffers as needed, `fixed` holds `capacity` tokens and refuses more, `ring` is growing but
    for sliding-window layers, which keep their last `window` positions. A step is begun, written by the layers, then
    committed; one that failed half-way left no trace, but that a ring has lost the oldest of its keys.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> ids, cache = torch.tensor([[5, 7, 9]]), cutaway.Cache(model.spec.blocks)
    >>> first, then = model(ids[:, :2], cache=cache), model(ids[:, 2:], cache=cache)
    >>> cache.length, torch.allclose(then, model(ids)[:, 2:], atol=1e-5)
    (3, True)
    """

    def __init__(self, blocks: tuple[spec.Block, ...], kind: Kind = "growing", capacity: int = 0) -> None:
        if kind not in get_args(Kind):
            raise InputError(f"cache: {kind!r}; choose growing, fixed or ring")
        if kind == "fixed" and capacity < 1:
            raise InputError("cache: a fixed cache needs a capacity of at least 1 token")
        self.length, self.kind, self.capacity = 0, kind, capacity
        self.kept: tuple[spec.Kept, ...] | None = None
        self.layers = [_LayerSlots(self, spec.window(block) if kind == "ring" else 0) for block in blocks]
        self.windows = {layer.window for layer in self.layers if layer.window}
        self.plain, self.packed = True, False
        self.positions = self.owners = torch.empty(0, 0, dtype=torch.long)  # B S
        self.rings: dict[int, Slots] = {}
        self.turns: dict[int, Turn] = {}
        self.counted: Tensor | None = None  # B S, the owners of ids that count for positions
        self.next_counted: Tensor | None = None
        self.pending: tuple[Slots, dict[int, Slots]] | None = None

    def layer(self, index: int) -> _LayerSlots:
        return self.layers[index]

    def check(self, kept: tuple[spec.Kept, ...]) -> None:
        """Raise InputError where the layers are not those of the model, which leave `kept` in it: asked once a model.

        Compiled code does not ask.
        """
        if torch.compiler.is_compiling() or kept is self.kept:
            return
        advice = "make one of this model's own blocks, `Cache(model.spec.blocks)`"
        if len(kept) != len(self.layers):
            raise InputError(f"cache: it has {len(self.layers)} layers, the model {len(kept)}; {advice}")
        for index, (each, layer) in enumerate(zip(kept, self.layers, strict=True)):
            if layer.window not in (0, each.window):
                seen = each.window or "all"
                raise InputError(
                    f"cache: layer {index} keeps {layer.window} positions, the model looks at {seen} there; {advice}"
                )
            if self.kept is not None and self.kept[index][:3] != each[:3]:
                held, wanted = ("{} heads of {} and {} numbers".format(*x) for x in (self.kept[index], each))
                raise InputError(f"cache: layer {index} holds {held}, the model has {wanted} there; {advice}")
        self.kept = kept

    def begin(self, new: Slots) -> dict[str, Slots]:
        """Announce a step; returns the slots its queries meet, for each layout."""
        end = self.length + new.positions.shape[1]
        if self.kind == "fixed" and end > self.capacity:
            raise InputError(f"cache: {end} tokens, but it is fixed at {self.capacity}; make a larger one")
        if self.length == 0:  # a first step that failed has kept what it made of its source
            for layer in self.layers:
                layer.cross = None
        past = self._past(new.owners)
        full = Slots(
            torch.cat((past.positions, new.positions), 1), torch.cat((past.owners, new.owners), 1),
            past.plain and new.plain, past.packed or new.packed,
        )  # fmt: skip
        rings = {window: self._ring(window, new) for window in self.windows}
        self.pending = full, {window: after for window, (_, after) in rings.items()}
        return {FULL: full} | {f"ring.{window}": seen for window, (seen, _) in rings.items()}

    def commit(self) -> None:
        """The layers have written the step: it now belongs to the past."""
        assert self.pending is not None
        full, self.rings = self.pending
        self.length, self.pending = full.positions.shape[1], None
        self.positions, self.owners, self.plain, self.packed = full.positions, full.owners, full.plain, full.packed
        self.counted = self.next_counted

    def row_lengths(self) -> int | Int[Tensor, " B"]:
        return self.length if self.plain else (self.owners >= 0).sum(1)

    def with_past(self, owners: Int[Tensor, "B T"]) -> Int[Tensor, "B S"]:
        return torch.cat((self._past(owners).owners, owners), 1)

    def count_ids(self, owners: Int[Tensor, "B T"]) -> Int[Tensor, "B S"]:
        past = owners[:, :0] if self.counted is None else self.counted
        self.next_counted = torch.cat((past, owners), 1)
        return self.next_counted

    def reorder(self, rows: Int[Tensor, " R"], drop: int = 0, same_memory: bool = False) -> None:
        """Row i becomes a copy of what was row rows[i], without its first `drop` columns, padding in all that are left.

        `same_memory`: the encoder's output is that of the old row i, so its keys and values stay where they are.
        """
        for layer in self.layers:
            layer.reorder(rows, drop, same_memory)
        if self.length:
            self.positions, self.owners = self.positions[rows, drop:], self.owners[rows, drop:]
            self.length -= drop
        if self.length and not self.plain and not same_memory:  # the rows with padding may be those that left
            column = torch.arange(self.length, device=rows.device)
            self.plain = bool(((self.owners == 0) & (self.positions == column)).all())
        self.rings = {w: Slots(s.positions[rows], s.owners[rows], s.plain) for w, s in self.rings.items()}
        self.counted = None if self.counted is None else self.counted[rows, drop:]

    def nbytes(self) -> int:
        """Bytes of keys and values that are in use."""
        return sum(layer.nbytes() for layer in self.layers)

    def _past(self, owners: Tensor) -> Slots:
        if self.length == 0:
            empty = owners[:, :0]
            return Slots(empty, empty, True)
        if len(owners) != len(self.owners):
            raise InputError(f"cache: it holds {len(self.owners)} rows, the step has {len(owners)}; use its own")
        if owners.device != self.owners.device:
            raise InputError(f"cache: it is on {self.owners.device}, the ids are on {owners.device}; make a new one")
        return Slots(self.positions, self.owners, self.plain, self.packed)

    def _ring(self, window: int, new: Slots) -> tuple[Slots, Slots]:
        """What the step's queries meet (before the ring turns, for several; after, for one), and the ring after it."""
        batch = len(new.positions)
        old = self.rings.get(window)
        if old is None:
            nowhere = new.positions.new_full((batch, window), -1)
            old = Slots(nowhere, nowhere, False)
        self.turns[window] = turn = self._turn(window, new)
        after = Slots(turn.write(old.positions, new.positions), turn.write(old.owners, new.owners), False)
        seen = after
        if new.positions.shape[1] > 1:
            both = torch.cat((old.positions, new.positions), 1), torch.cat((old.owners, new.owners), 1)
            seen = Slots(*both, plain=False)
        if new.packed and not torch.compiler.is_compiling():
            _check_window(window, new, seen)
        return seen, after

    def _turn(self, window: int, new: Slots) -> Turn:
        """A ring keeps the last real tokens of each row, one after the other."""
        batch, n_new = new.positions.shape
        n, before, real, device = min(n_new, window), self.row_lengths(), new.owners >= 0, new.owners.device
        column = real.long().argsort(dim=1, stable=True)[:, -n:]  # padding comes first, then the tokens in order
        order = real.sum(1, keepdim=True) + torch.arange(-n, 0, device=device)  # among this step's; below 0: none
        place = order + (before if isinstance(before, int) else before[:, None])
        row = torch.arange(batch, device=device)[:, None]
        return Turn(row, column, place % window, None if new.plain else order >= 0)


class _LayerSlots:
    """The buffers of one layer."""

    def __init__(self, cache: Cache, window: int) -> None:
        self.cache, self.window = cache, window
        self.layout = f"ring.{window}" if window else FULL
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.cross: tuple[Tensor, Tensor] | None = None

    def extend(self, keys: Float[Tensor, "B K T H"], values: Float[Tensor, "B K T V"]) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.keys.dtype != keys.dtype:
            raise InputError(f"cache: it holds {self.keys.dtype}, the model's keys are {keys.dtype}; make a new one")
        return self._turn(keys, values) if self.window else self._append(keys, values)

    def memory(self) -> tuple[Tensor, Tensor] | None:
        return self.cross

    def keep_memory(self, keys: Tensor, values: Tensor) -> None:
        self.cross = keys, values

    def reorder(self, rows: Tensor, drop: int, same_memory: bool) -> None:
        kept = slice(drop, self.cache.length) if drop and not self.window else slice(None)
        self.keys, self.values = (None if x is None else x[rows][:, :, kept] for x in (self.keys, self.values))
        if self.cross is not None and not same_memory:
            self.cross = self.cross[0][rows], self.cross[1][rows]

    def nbytes(self) -> int:
        own = [x for x in (self.keys, self.values) if x is not None]
        used = min(self.cache.length, self.window) if self.window else self.cache.length
        held = [x[:, :, :used] for x in own] + list(self.cross or ())
        return sum(x.numel() * x.element_size() for x in held)

    def _append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        start = self.cache.length
        end = start + keys.shape[2]
        if self.keys is None or self.values is None or self.keys.shape[2] < end:
            self.keys, self.values = (
                self._room(self.keys, keys, start, end),
                self._room(self.values, values, start, end),
            )
        self.keys.narrow(2, start, end - start).copy_(keys)
        self.values.narrow(2, start, end - start).copy_(values)
        return self.keys.narrow(2, 0, end), self.values.narrow(2, 0, end)

    def _room(self, buffer: Tensor | None, like: Tensor, start: int, end: int) -> Tensor:
        size = self.cache.capacity if self.cache.kind == "fixed" else max(64, 2 * start, end)
        grown = like.new_empty(*like.shape[:2], size, like.shape[3])
        if buffer is not None:
            grown[:, :, :start] = buffer[:, :, :start]
        return grown

    def _turn(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        turn = self.cache.turns[self.window]
        if self.keys is None or self.values is None:
            self.keys = keys.new_zeros(*keys.shape[:2], self.window, keys.shape[3])
            self.values = values.new_zeros(*values.shape[:2], self.window, values.shape[3])
        before = None
        if keys.shape[2] > 1:  # several queries meet the old keys before the new ones take their place
            before = torch.cat((self.keys, keys), 2), torch.cat((self.values, values), 2)
        turn.write_heads(self.keys, keys)
        turn.write_heads(self.values, values)
        if before is not None:
            return before
        heads = keys.shape[1]  # compiled code knows it as a number here, not of what a cache holds
        return self.keys.expand(-1, heads, -1, -1), self.values.expand(-1, heads, -1, -1)


def _check_window(window: int, new: Slots, seen: Slots) -> None:
    """Every key that a packed token's window reaches back to must be in the ring yet."""
    found = visible(spec.SlidingMask(window=window), new, seen)[:, 0].sum(-1)
    if bool(((found < (new.positions + 1).clamp(max=window)) & (new.owners >= 0)).any()):
        raise InputError(
            "cache: a ring keeps a row's last tokens, not those of an earlier document; take a growing one"
        )
