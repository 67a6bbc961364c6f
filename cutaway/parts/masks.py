"""Who may look at whom: one rule over (position, owner) for padding, packing, windows, chunks and caches alike."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cutaway import spec
from cutaway.parts.slots import Slots

Mask = spec.FullMask | spec.CausalMask | spec.PrefixMask | spec.SlidingMask | spec.TwoSidedMask | spec.ChunkedMask


def visible(mask: Mask, query: Slots, key: Slots, prefix: Tensor | None = None) -> Bool[Tensor, "B 1 T S"]:
    """True where the owner is the same and real, and the mask's own rule holds; `prefix`: its length in each row."""
    q, k = query.positions[:, :, None], key.positions[:, None, :]
    own = query.owners[:, :, None]
    seen = (own == key.owners[:, None, :]) & (own >= 0)
    match mask:
        case spec.CausalMask():
            seen = seen & (k <= q)
        case spec.SlidingMask():
            seen = seen & (k <= q) & (k > q - mask.window)
        case spec.ChunkedMask():
            seen = (
                seen & (k <= q) & (k.div(mask.size, rounding_mode="floor") == q.div(mask.size, rounding_mode="floor"))
            )
        case spec.TwoSidedMask():
            seen = seen & ((k - q).abs() <= mask.half_width)
        case spec.PrefixMask():
            inside = (k < 0) if prefix is None else (k < prefix[:, None, None])
            seen = seen & ((k <= q) | inside)
    return seen[:, None]  # B 1 T S


def shape_rule(mask: Mask, n_queries: int, n_keys: int) -> str:
    """For plain slots: 'all' (nothing hidden), 'causal' (lower triangle from the first key), or 'tensor'."""
    match mask:
        case spec.FullMask():
            return "all"
        case spec.CausalMask():
            fits = True
        case spec.SlidingMask():
            fits = n_keys <= mask.window
        case spec.ChunkedMask():
            fits = n_keys <= mask.size
        case spec.TwoSidedMask():
            return "all" if n_keys - 1 <= mask.half_width else "tensor"
        case _:
            return "tensor"
    if not fits:
        return "tensor"
    return "all" if n_queries == 1 else "causal" if n_queries == n_keys else "tensor"


def counted_positions(real: Bool[Tensor, "B T"], before: Tensor | int = 0) -> Tensor:
    """Number of real tokens before each token of its row, `before` more; padding ahead of the first has 0."""
    return (real.long().cumsum(1) - 1 + before).clamp(min=0)


def counted_in_documents(owners: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """Number of tokens before each token of its row that have the same owner."""
    order = owners.argsort(dim=1, stable=True)
    sorted_owners = owners.gather(1, order)
    column = torch.arange(owners.shape[1], device=owners.device).expand_as(owners)
    first = torch.ones_like(owners, dtype=torch.bool)
    first[:, 1:] = sorted_owners[:, 1:] != sorted_owners[:, :-1]
    rank = column - torch.where(first, column, 0).cummax(1).values
    return torch.empty_like(rank).scatter_(1, order, rank)
