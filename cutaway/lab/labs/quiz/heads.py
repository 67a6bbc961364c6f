"""Skip test of `heads`: masked weights, hidden scores, the scale, parameters, and the shape of all grids."""

from __future__ import annotations

import math

import numpy as np

from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, pick, row, whole
from cutaway.reference.attention import attend, pattern, split_heads
from cutaway.reference.functions import softmax
from cutaway.reference.masks import causal


def masked(rng: np.random.Generator) -> Fresh:
    """A weight of a masked row."""
    i, scores = whole(rng, 1, 2), rng.integers(-2, 4, 4).astype(np.float64)
    weights = pattern(scores, causal(i, np.arange(4)))
    wrong = {"unmasked": float(softmax(scores)[0]), "strict": float(softmax(scores[:i])[0])}
    return Fresh({"i": str(i), "scores": row(scores)}, float(weights[0]), wrong, TWO_DECIMALS)


def hidden(rng: np.random.Generator) -> Fresh:
    """Scores above the diagonal."""
    n = whole(rng, 5, 40)
    places = np.arange(n)
    visible = float(causal(places[:, None], places).sum())
    return Fresh({"n": str(n), "less": str(n - 1)}, n * n - visible, {"visible": visible, "half": n * n / 2})


def width(rng: np.random.Generator) -> Fresh:
    """The root of a head's width."""
    heads, d_k = pick(rng, [2, 4, 8, 12]), pick(rng, [16, 25, 32, 36, 64, 128])
    values = {"d": str(heads * d_k), "h": str(heads), "dk": str(d_k)}
    return Fresh(values, math.sqrt(d_k), {"whole": math.sqrt(heads * d_k), "dk": float(d_k)}, TWO_DECIMALS)


def parameters(rng: np.random.Generator) -> Fresh:
    """Four square matrices."""
    heads, d_k = pick(rng, [2, 4, 8]), pick(rng, [4, 8, 16])
    d = heads * d_k
    return Fresh({"d": str(d), "h": str(heads)}, 4.0 * d * d, {"three": 3.0 * d * d, "heads": 4.0 * d * d * heads})


def grids(rng: np.random.Generator) -> Fresh:
    """The shape of all weights."""
    batch, tokens, heads, d_k = whole(rng, 2, 4), whole(rng, 9, 15), whole(rng, 5, 8), whole(rng, 16, 32)
    q = split_heads(np.zeros((batch, tokens, heads * d_k)), heads)
    z, weights = attend(q, q, q)
    wrong = {"one": [batch, tokens, tokens], "values": list(z.shape), "flat": [heads, batch * tokens, batch * tokens]}
    values = {"B": str(batch), "T": str(tokens), "h": str(heads), "d": str(heads * d_k)}
    return Fresh(values, list(weights.shape), wrong)


TESTS = {"masked": masked, "hidden": hidden, "width": width, "parameters": parameters, "grids": grids}
