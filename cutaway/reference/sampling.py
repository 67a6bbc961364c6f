"""From logits to a token. The order is fixed: penalties, temperature, top-k, top-p, min-p, draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutaway.errors import InputError
from cutaway.reference.functions import Array, real, softmax


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 keep every token; penalties 1 and 0 change nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0


def penalise(logits: ArrayLike, seen: ArrayLike, repetition: float = 1.0, presence: float = 0.0) -> Array:
    """Each distinct id seen so far, prompt included, made less likely, once. logits [V], seen: ids.

    repetition: a positive logit divided by it, a negative one multiplied (Keskar et al. 2019, arXiv:1909.05858);
    then presence is subtracted.
    """
    logits = real(logits).copy()
    ids = np.unique(np.asarray(seen, dtype=np.int64))
    before = logits[ids]
    logits[ids] = np.where(before > 0, before / repetition, before * repetition) - presence
    return logits


def ranks(logits: ArrayLike) -> np.ndarray:
    """0 for the likeliest token, 1 for the next ...; of equal ones the lower id first."""
    order = np.argsort(-real(logits), kind="stable")
    return np.argsort(order, kind="stable")


def keep_top_k(logits: ArrayLike, k: int) -> Array:
    """-inf but for the k likeliest; 0 keeps all."""
    return real(logits) if k == 0 else np.where(ranks(logits) < k, real(logits), -np.inf)


def keep_top_p(logits: ArrayLike, p: float) -> Array:
    """-inf but for the smallest set of likeliest tokens whose probabilities reach p; never empty (arXiv:1904.09751).

    A token is kept if those before it hold less than p: so the one that crosses p is kept, and the first always.
    """
    logits = real(logits)
    if p >= 1:
        return logits
    place = ranks(logits)
    in_order = np.sort(softmax(logits))[::-1]
    before = np.cumsum(in_order) - in_order
    return np.where((before[place] < p) | (place == 0), logits, -np.inf)


def keep_min_p(logits: ArrayLike, p: float) -> Array:
    """-inf where the probability is below p times that of the likeliest token (arXiv:2407.01082)."""
    logits = real(logits)
    probabilities = softmax(logits)
    return np.where(probabilities >= p * probabilities.max(), logits, -np.inf)


def distribution(logits: ArrayLike, how: Sampling = Sampling(), seen: ArrayLike = ()) -> Array:
    """The probabilities that the next token is drawn from. logits [V] -> [V]; temperature 0: all on the argmax.

    Raises InputError for a negative temperature.
    """
    if how.temperature < 0:
        raise InputError(f"temperature {how.temperature} is negative; 0 is greedy, 1 leaves the model as it is")
    logits = penalise(logits, seen, how.repetition_penalty, how.presence_penalty)
    if how.temperature == 0:
        return (ranks(logits) == 0).astype(np.float64)
    kept = keep_top_k(logits, how.top_k)  # before the difference rounds neighbours to equals
    scaled = (kept - logits.max()) / how.temperature  # the difference first: no overflow at 1e-300
    return softmax(keep_min_p(keep_top_p(scaled, how.top_p), how.min_p))


def draw(probabilities: ArrayLike, uniform: float) -> int:
    """The token in whose stretch of the cumulative sum a number of [0, 1) falls."""
    cumulative = np.cumsum(real(probabilities))
    place = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(place, int(np.flatnonzero(real(probabilities))[-1]))
