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
from cutaway.parts.positions import Placing, rotation_tables
from cutaway.parts.slots import FULL, Cache, Slots


@dataclass(frozen=True)
class View:
    """What a query may see: everything, the lower triangle (`causal`), or where `allowed`.

    `bias` joins the scores; `sinks` are a key's logits that every query sees and that carry no value. `mask` says all
    of it to a fused kernel, but that rows which see nothing (`hidden`) see all there: kernels differ on them.
    """

    allowed: Bool[Tensor, "B 1 T S"] | None = None
    causal: bool = False
    bias: Float[Tensor, "B N T S"] | None = None
    sinks: Float[Tensor, " N"] | None = None
    mask: Float[Tensor, "B N T S"] | Bool[Tensor, "B 1 T S"] | None = None
    hidden: Bool[Tensor, "B 1 T 1"] | None = None

    @staticmethod
    def where(allowed: Bool[Tensor, "B 1 T S"], bias: Float[Tensor, "B N T S"] | None = None) -> View:
        hidden = ~allowed.any(-1, keepdim=True)
        mask = allowed | hidden
        return View(allowed, False, bias, None, mask if bias is None else bias.masked_fill(~mask, -torch.inf), hidden)


@dataclass(frozen=True)
class Memory:
    """An encoder's output and which of its tokens are real."""

    states: Float[Tensor, "B S D"]
    owners: Int[Tensor, "B S"]
    plain: bool


@dataclass(frozen=True)
class Step:
    """Positions [B T], owners [B T] (-1: padding), slots by cache layout, and what is derived from them on demand.

    `lengths`: tokens of each row, or of each token's document, so far, this step's included. `columns`: where this
    step's tokens stand in the batch, or in their document. `counts`: ids other than the pad before each, for models
    that count from them. `types`: token types. `aux` collects load-balance losses where the
    caller wants them.
    """

    query: Slots
    keys: dict[str, Slots]
    lengths: Int[Tensor, " B"] | Int[Tensor, "B T"]
    columns: Int[Tensor, "B T"]
    ids: Int[Tensor, "B T"]
    dtype: torch.dtype
    prefix: Int[Tensor, " B"] | None = None
    memory: Memory | None = None
    counts: Int[Tensor, "B T"] | None = None
    types: Int[Tensor, "B T"] | None = None
    aux: list[Tensor] | None = None
    notes: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def positions(self) -> Int[Tensor, "B T"]:
        return self.query.positions

    def remember(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made once a step."""
        made = self.notes.get(key)
        if made is None:
            made = self.notes[key] = make()
        return made

    def rotation(self, key: Hashable, record: spec.RoPE, rotary_dim: int) -> tuple[Tensor, Tensor]:
        return self.remember(key, lambda: rotation_tables(record, rotary_dim, self.positions, self.lengths, self.dtype))

    def view(self, key: Hashable, mask: Mask, layout: str, placing: Placing) -> View:
        """What the queries see of a layout's keys: made once for all layers with one mask (`key`) and one bias."""
        return self.remember((key, placing.bias_key, layout), lambda: self._view(mask, layout, placing))

    def _view(self, mask: Mask, layout: str, placing: Placing) -> View:
        key, bias = self.keys[layout], placing.bias(self, layout)
        if self.query.plain and key.plain:
            rule = shape_rule(mask, self.positions.shape[1], key.positions.shape[1])
            if rule == "all" or (rule == "causal" and bias is None):
                return View(causal=rule == "causal", bias=bias, mask=bias)
        return View.where(visible(mask, self.query, key, self.prefix), bias)

    def memory_view(self) -> View:
        """A cross-attention sees every real token of the encoder."""
        return self.remember("memory", self._memory_view)

    def _memory_view(self) -> View:
        memory = self.memory
        assert memory is not None
        if memory.plain:
            return View()
        real = (memory.owners >= 0)[:, None, None, :]
        return View.where(real.expand(-1, 1, self.positions.shape[1], -1))

    def only(self, rows: slice) -> Step:
        """The same step seen by a head that reads some of its positions: lengths and owners are the rows'."""
        query = replace(self.query, positions=self.positions[:, rows], owners=self.query.owners[:, rows])
        return replace(self, query=query, ids=self.ids[:, rows], columns=self.columns[:, rows], notes={})


@dataclass(frozen=True)
class Given:
    """What a caller may say about ids beyond the ids: all shapes [B, T] or [B] like them.

    `mask`: 1 for real tokens, 0 for padding on either side. `owners`: document of each token (-1 padding) where rows
    pack several; a document that a cache holds goes on where its number comes again. `prefix`: length of the part that
    sees itself in full. `types`: token types (BERT). `lengths`: of the rows, or of each token's document [B, T], once
    all is read, for rotations that go by it, where a text is read in several calls.

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


NOTHING = Given()


def begin(
    ids: Int[Tensor, "B T"], given: Given, cache: Cache | None, dtype: torch.dtype, pad_id: int | None = None,
    context_length: int | str = "unlimited",
) -> Step:  # fmt: skip
    """The step for these ids after what the cache holds; `pad_id` where the model counts positions from ids.

    What is given is moved to the ids' device. Raises InputError where a row, or a document of a packed one, is longer
    than the context: padding does not count.
    """
    start, there = 0 if cache is None else cache.length, ids.device
    columns = torch.arange(start, start + ids.shape[1], device=ids.device)
    query, lengths = _query(ids, given, cache, columns)
    if context_length != "unlimited":
        _check_context(query, start, int(context_length))
    return Step(
        query,
        keys={FULL: query} if cache is None else cache.begin(query),
        lengths=lengths if given.lengths is None else given.lengths.to(there),
        columns=query.positions if query.packed else columns.expand(ids.shape),
        ids=ids,
        dtype=dtype,
        prefix=None if given.prefix is None else given.prefix.to(there),
        memory=given.memory,
        counts=None if pad_id is None else _counts(ids, query, cache, pad_id),
        types=None if given.types is None else given.types.to(there),
        aux=given.aux,
    )


def _query(ids: Tensor, given: Given, cache: Cache | None, columns: Tensor) -> tuple[Slots, Tensor]:
    """Where the new tokens stand, and how long their rows, or their documents [B T], have become."""
    before = 0 if cache is None else cache.row_lengths()  # [B], or an int while all rows are alike
    if given.owners is not None:
        owners = given.owners.to(ids.device)
        whole = owners if cache is None else cache.with_past(owners)
        positions = counted_in_documents(whole)[:, -ids.shape[1] :]
        lengths = (owners[:, :, None] == whole[:, None, :]).sum(-1)
        return Slots(positions, owners, plain=False, packed=True), lengths
    if cache is not None and cache.packed:
        raise InputError("owners: the cache holds packed documents; say which of them each token goes on, or begins")
    if given.mask is None and isinstance(before, int):
        positions = columns.expand(ids.shape)
        lengths = torch.full((ids.shape[0],), before + ids.shape[1], device=ids.device)
        return Slots(positions, torch.zeros_like(positions), plain=True), lengths
    real = torch.ones_like(ids, dtype=torch.bool) if given.mask is None else given.mask.to(ids.device) != 0
    positions = counted_positions(real, before if isinstance(before, int) else before[:, None])
    return Slots(positions, torch.where(real, 0, -1), plain=False), real.sum(1) + before


def _check_context(query: Slots, start: int, context_length: int) -> None:
    longest = start + query.positions.shape[1]
    if longest > context_length and not query.plain:  # no row is longer than this; with padding each may be shorter
        if not query.positions.numel() or torch.compiler.is_compiling():
            return
        longest = int(torch.where(query.owners >= 0, query.positions, -1).max()) + 1
    if longest > context_length:
        raise InputError(f"ids: {longest} tokens, but the model's context is {context_length}; shorten the text")


def _counts(ids: Tensor, query: Slots, cache: Cache | None, pad_id: int) -> Tensor:
    """Ids other than the pad before each id of its row or, where rows are packed, of its document."""
    owners = torch.where(ids != pad_id, query.owners if query.packed else 0, -1)
    whole = owners if cache is None else cache.count_ids(owners)
    return counted_in_documents(whole)[:, -ids.shape[1] :]
