"""Skip test of `depth`: factors, slopes, residuals, and the axis of a norm."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, pick, row, whole
from cutaway.reference.norms import column_norm, layer_norm


def chain(rng: np.random.Generator) -> Fresh:
    """A power."""
    factor, n = pick(rng, [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]), whole(rng, 3, 6)
    wrong = {"linear": factor * n, "off": factor ** (n - 1)}
    return Fresh({"factor": f"{factor:g}", "n": str(n)}, factor**n, wrong, 0.00005 + 1e-9)


def slope(rng: np.random.Generator) -> Fresh:
    """y (1 - y)."""
    y = whole(rng, 1, 9) / 10
    return Fresh({"y": f"{y:g}"}, y * (1 - y), {"output": y, "tanh": 1 - y * y}, TWO_DECIMALS)


def residual(rng: np.random.Generator) -> Fresh:
    """(1 + a)(1 + b)."""
    a, b = whole(rng, 2, 9) / 10, whole(rng, 2, 9) / 10
    wrong = {"plain": a * b, "direct": 1 + a + b, "once": 1 + a * b}
    return Fresh({"a": f"{a:g}", "b": f"{b:g}"}, (1 + a) * (1 + b), wrong, TWO_DECIMALS)


def batch(rng: np.random.Generator) -> Fresh:
    """A column of two."""
    x = rng.integers(-9, 10, (2, 3)).astype(np.float64)
    column = x[:, 0]
    answer = float(column_norm(x)[0, 0])
    wrong = {"layer": float(layer_norm(x)[0, 0]), "sign": -answer, "shift": float(column[0] - column.mean())}
    values = {
        "first": row(x[0]), "second": row(x[1]), "mean": show.short(column.mean()), "std": show.short(column.std()),
    }  # fmt: skip
    return Fresh(values, answer, wrong)


def means(rng: np.random.Generator) -> Fresh:
    """One a column."""
    n, d = whole(rng, 3, 30), whole(rng, 31, 60)
    return Fresh({"n": str(n), "d": str(d)}, float(d), {"rows": float(n), "all": float(n * d)})


TESTS = {"chain": chain, "slope": slope, "residual": residual, "batch": batch, "means": means}
