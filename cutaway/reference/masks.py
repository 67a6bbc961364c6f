"""Who may look at whom. A rule compares positions; `visible` adds who owns a token, so padding needs nothing else."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bools = NDArray[np.bool_]
PADDING = -1


def full(i: ArrayLike, j: ArrayLike) -> Bools:
    """Every query sees every key."""
    return np.broadcast_to(True, np.broadcast_shapes(np.shape(i), np.shape(j)))


def causal(i: ArrayLike, j: ArrayLike) -> Bools:
    """Query i sees the keys j <= i."""
    return np.asarray(j) <= np.asarray(i)


def prefix(i: ArrayLike, j: ArrayLike, length: ArrayLike) -> Bools:
    """As causal, and the first `length` keys are seen by all (arXiv:1910.10683)."""
    return causal(i, j) | (np.asarray(j) < np.asarray(length))


def sliding(i: ArrayLike, j: ArrayLike, window: int) -> Bools:
    """Query i sees the `window` keys i - window < j <= i, itself among them."""
    return causal(i, j) & (np.asarray(j) > np.asarray(i) - window)


def two_sided(i: ArrayLike, j: ArrayLike, half_width: int) -> Bools:
    """Query i sees the keys with |i - j| <= half_width."""
    return np.abs(np.asarray(i) - np.asarray(j)) <= half_width


def chunked(i: ArrayLike, j: ArrayLike, size: int) -> Bools:
    """Query i sees the keys j <= i of its own chunk of `size` positions."""
    return causal(i, j) & (np.asarray(i) // size == np.asarray(j) // size)


def owners_from_mask(mask: ArrayLike) -> NDArray[np.int64]:
    """Each row owns its real tokens; padding belongs to nobody. mask [B, T] of 1 and 0 -> [B, T]."""
    mask = np.asarray(mask).astype(bool)
    return np.where(mask, np.arange(mask.shape[0])[:, None], PADDING)


def visible(rule: ArrayLike, query_owners: ArrayLike, key_owners: ArrayLike) -> Bools:
    """The rule holds, and query and key belong to the same owner. rule [B, T, S], owners [B, T] and [B, S]."""
    query, key = (np.asarray(query_owners)[..., :, None], np.asarray(key_owners)[..., None, :])
    return np.asarray(rule) & (query == key) & (key != PADDING)
