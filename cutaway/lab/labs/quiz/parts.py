"""Skip test of `parts`: positions, units that are on, LayerNorm by hand, its means, and the norms of a stack."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, row, table, whole
from cutaway.reference.functions import Array
from cutaway.reference.norms import layer_norm
from cutaway.reference.positions import sinusoidal


def position(rng: np.random.Generator) -> Fresh:
    """One number of the table's slow pair, d = 4: sin(0.01 pos)."""
    pos = whole(rng, 10, 120)
    fast, _, answer, cosine = sinusoidal(pos, 4)
    return Fresh({"pos": str(pos)}, float(answer), {"cosine": float(cosine), "fast": float(fast)}, TWO_DECIMALS)


def units(rng: np.random.Generator) -> Fresh:
    """How many hidden units are above 0."""
    x, weight, bias = rng.integers(-2, 4, 2), rng.integers(-1, 2, (2, 4)), rng.integers(-2, 3, 4)
    pre = x @ weight + bias
    wrong = {"zero": float((pre >= 0).sum()), "bias": float((x @ weight > 0).sum())}
    values = {"x": row(x), "W": table(weight), "b": row(bias), "pre": row(pre)}
    return Fresh(values, float((pre > 0).sum()), wrong)


def norm(rng: np.random.Generator) -> Fresh:
    """LayerNorm of four numbers whose std is whole."""
    x = _whole_std(rng)
    mean, std = x.mean(), x.std()
    wrong = {
        "sample": float((x[3] - mean) / x.std(ddof=1)),
        "variance": float((x[3] - mean) / std**2),
        "shift": float(x[3] / std),
        "scale": float(x[3] - mean),
    }
    values = {"x": row(x), "mean": row([mean])[1:-1], "std": row([std])[1:-1], "last": row([x[3]])[1:-1]}
    return Fresh(values, float(layer_norm(x)[3]), wrong, TWO_DECIMALS)


def means(rng: np.random.Generator) -> Fresh:
    """The means of a batch: one a token."""
    batch, length, width = whole(rng, 2, 5), whole(rng, 6, 12), whole(rng, 13, 20)
    wrong = {"columns": width, "all": batch * length * width, "words": batch * width, "batch": length * width}
    return Fresh({"B": str(batch), "L": str(length), "d": str(width)}, float(batch * length), wrong)


def norms(rng: np.random.Generator) -> Fresh:
    """The norms of a pre-norm stack."""
    blocks = whole(rng, 4, 40)
    wrong = {"final": 2 * blocks, "one": blocks + 1, "each": 3 * blocks}
    return Fresh({"n": str(blocks)}, float(2 * blocks + 1), wrong)


def _whole_std(rng: np.random.Generator) -> Array:
    while True:
        x = rng.integers(0, 13, 4)
        if len(set(x)) > 2 and x.sum() % 4 == 0 and x.std() == round(x.std()) and x[3] != x.mean():
            return x.astype(np.float64)


TESTS = {"position": position, "units": units, "norm": norm, "means": means, "norms": norms}
