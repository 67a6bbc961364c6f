"""The record of one call: what every layer needs to know about this step's tokens, worked out once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.masks import Mask, counted_in_documents, counted_positions, shape_rule, visible
from cutaway.parts.positions import rotation_tables
from cutaway.parts.slots import FULL, Cache, Slots


@dataclass(frozen=True)
class View:
    """What a query may see: everything, the lower triangle (`causal`), or where `allowed`.

    `bias` joins the scores; `sinks` are a key's logits that every query sees and that carry no value.
    """

    allowed: Bool[Tensor, "B 1 T S"] | None = None
    causal: bool = False
    bias: Float[Tensor, "B N T S"] | None = None
    sinks: Float[Tensor, " N"] | None = None


@dataclass(frozen=True)
class Memory:
    """An encoder's output and which of its tokens are real."""

    states: Float[Tensor, "B S D"]
    owners: Int[Tensor, "B S"]
    plain: bool


@dataclass(frozen=True)
class Step:
    """Positions [B T], owners [B T] (-1: padding), slots by cache layout, and what is derived from them on demand.

    `lengths`: tokens of each row so far, this step's included. `columns`: where this step's tokens stand in the
    batch. `aux` collects load-balance losses where the caller wants them.
    """

    query: Slots
    keys: dict[str, Slots]
    lengths: Int[Tensor, " B"]
    columns: Int[Tensor, " T"]
    ids: Int[Tensor, "B T"]
    dtype: torch.dtype
    prefix: Int[Tensor, " B"] | None = None
    memory: Memory | None = None
    counts: Int[Tensor, " B"] | None = None
    aux: list[Tensor] | None = None
    notes: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def positions(self) -> Int[Tensor, "B T"]:
        return self.query.positions

    def slots(self, layout: str) -> Slots:
        return self.keys[layout]

    def remember(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once a step."""
        made = self.notes.get(key)
        if made is None:
            made = self.notes[key] = make()
        return made

    def rotation(self, key: Hashable, record: spec.RoPE, rotary_dim: int) -> tuple[Tensor, Tensor]:
        return self.remember(key, lambda: rotation_tables(record, rotary_dim, self.positions, self.lengths, self.dtype))

    def view(self, key: Hashable, mask: Mask, layout: str) -> View:
        return self.remember((key, layout), lambda: self._view(mask, self.keys[layout]))

    def _view(self, mask: Mask, key: Slots) -> View:
        if self.query.plain and key.plain:
            rule = shape_rule(mask, self.positions.shape[1], key.positions.shape[1])
            if rule != "tensor":
                return View(causal=rule == "causal")
        return View(allowed=visible(mask, self.query, key, self.prefix))

    def memory_view(self) -> View:
        """A cross-attention sees every real token of the encoder."""
        return self.remember("memory", self._memory_view)

    def _memory_view(self) -> View:
        memory = self.memory
        assert memory is not None
        if memory.plain:
            return View()
        real = (memory.owners >= 0)[:, None, None, :]
        return View(allowed=real.expand(-1, 1, self.positions.shape[1], -1))

    def only(self, rows: slice) -> Step:
        """The same step seen by a head that reads some of its positions: lengths and owners are the rows'."""
        query = replace(self.query, positions=self.positions[:, rows], owners=self.query.owners[:, rows])
        return replace(self, query=query, ids=self.ids[:, rows], columns=self.columns[rows], notes={})


@dataclass(frozen=True)
class Given:
    """What a caller may say about ids beyond the ids: all shapes [B, T] or [B] like them.

    `mask`: 1 for real tokens, 0 for padding on either side. `owners`: document of each token (-1 padding) where rows
    pack several. `prefix`: length of the part that sees itself in full. `types`: token types (BERT). `lengths`: of the
    rows once all is read, for rotations that go by it, where a text is read in several calls.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> padded, alone = torch.tensor([[0, 0, 5, 7]]), torch.tensor([[5, 7]])
    >>> logits = model(padded, cutaway.Given(mask=torch.tensor([[0, 0, 1, 1]])))
    >>> torch.allclose(logits[:, 2:], model(alone), atol=1e-5)
    True
    """

    mask: Tensor | None = None
    owners: Tensor | None = None
    prefix: Tensor | None = None
    types: Tensor | None = None
    memory: Memory | None = None
    aux: list[Tensor] | None = None
    lengths: Tensor | None = None


def begin(ids: Int[Tensor, "B T"], given: Given, cache: Cache | None, dtype: torch.dtype, pad_id: int | None) -> Step:
    """The step for these ids after what the cache holds; `pad_id` where the model counts positions from ids."""
    n_rows, n_new = ids.shape
    start = 0 if cache is None else cache.length
    columns = torch.arange(start, start + n_new, device=ids.device)
    query, lengths = _query(ids, given, cache, columns)
    counts = _counts(ids, cache, pad_id)
    keys = {FULL: query} if cache is None else cache.begin(query.positions, query.owners, query.plain)
    return Step(
        query, keys, lengths if given.lengths is None else given.lengths, columns, ids, dtype,
        prefix=given.prefix, memory=given.memory, counts=counts, aux=given.aux,
    )  # fmt: skip


def _query(ids: Tensor, given: Given, cache: Cache | None, columns: Tensor) -> tuple[Slots, Tensor]:
    before = 0 if cache is None else cache.row_lengths()  # [B], or an int while all rows are alike
    if given.owners is not None:
        owners = _fitting(given.owners, ids, "owners")
        if cache is not None and cache.length:  # the cache does not tell where a document that goes on began
            raise InputError("owners: packed documents cannot go on from a cache; read them in one call")
        positions = counted_in_documents(owners) + (before if isinstance(before, int) else before[:, None])
        return Slots(positions, owners, plain=False), (positions.amax(1) + 1)
    if given.mask is None and isinstance(before, int):
        positions = columns.expand(ids.shape)
        lengths = torch.full((ids.shape[0],), before + ids.shape[1], device=ids.device)
        return Slots(positions, torch.zeros_like(positions), plain=True), lengths
    mask = torch.ones_like(ids) if given.mask is None else _fitting(given.mask, ids, "mask")
    real = mask != 0
    ahead = before if isinstance(before, int) else before[:, None]
    positions = counted_positions(real, ahead)
    lengths = real.sum(1) + before
    return Slots(positions, torch.where(real, 0, -1), plain=False), lengths


def _counts(ids: Tensor, cache: Cache | None, pad_id: int | None) -> Tensor | None:
    """Ids other than the pad before this step, in each row."""
    if pad_id is None:
        return None
    before = torch.zeros(ids.shape[0], dtype=torch.long, device=ids.device) if cache is None else cache.id_counts(ids)
    if cache is not None:
        cache.count_ids(before + (ids != pad_id).sum(1))
    return before


def _fitting(given: Tensor, ids: Tensor, name: str) -> Tensor:
    if given.shape != ids.shape:
        raise InputError(f"{name}: shape {tuple(given.shape)}, but ids have {tuple(ids.shape)}; give one a token")
    return given.to(ids.device)
