"""Skip test of `attention`: a score, the size of scores, a weight, an output, and the growth of the grid."""

from __future__ import annotations

import math

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, pick, row, whole
from cutaway.reference.functions import softmax


def score(rng: np.random.Generator) -> Fresh:
    """q k / sqrt d for a width whose root is whole."""
    width = pick(rng, [4, 9])
    q, k = rng.integers(-3, 4, (2, width))
    dot, root = float(q @ k), math.sqrt(width)
    values = {"q": row(q), "k": row(k), "dot": show.short(dot), "root": show.short(root)}
    return Fresh(values, dot / root, {"dot": dot, "width": dot / width}, TWO_DECIMALS)


def size(rng: np.random.Generator) -> Fresh:
    """The std of a sum of products."""
    root = whole(rng, 3, 16)
    return Fresh({"d": str(root**2)}, float(root), {"variance": float(root**2), "one": 1.0})


def weight(rng: np.random.Generator) -> Fresh:
    """Softmax of 0, ln a, ln b."""
    a, b = whole(rng, 2, 9), whole(rng, 2, 9)
    weights = softmax(np.log([1.0, a, b]))
    logs = np.log([a, b])
    wrong = {"zero": b / (a + b), "second": float(weights[1]), "plain": float(logs[1] / logs.sum())}
    values = {"a": str(a), "b": str(b), "sum": str(1 + a + b)}
    return Fresh(values, float(weights[2]), wrong, TWO_DECIMALS)


def output(rng: np.random.Generator) -> Fresh:
    """A weighted average of three values."""
    parts = np.sort(rng.choice(np.arange(1, 10), 2, replace=False)) / 10
    weights = np.array([parts[0], parts[1] - parts[0], 1 - parts[1]])
    v = rng.integers(-6, 7, (3, 2))
    averaged = weights @ v
    wrong = {"second": float(averaged[1]), "mean": float(v[:, 0].mean()), "sum": float(v[:, 0].sum())}
    values = {"w": row(weights), **{f"v{i + 1}": row(v[i]) for i in range(3)}}
    return Fresh(values, float(averaged[0]), wrong, TWO_DECIMALS)


def grid(rng: np.random.Generator) -> Fresh:
    """The growth of tokens x tokens."""
    n, times = whole(rng, 100, 900), whole(rng, 3, 12)
    wrong = {"linear": float(times), "cube": float(times**3)}
    return Fresh({"n": str(n), "times": str(times)}, (n * times) ** 2 / n**2, wrong)


TESTS = {"score": score, "size": size, "weight": weight, "output": output, "grid": grid}
