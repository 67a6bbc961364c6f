"""What the labs `stack` and `residual-path` share: the four rules, and random layers f(x) = gain W x."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cutaway.reference.functions import Array

RULES = {
    "f": "x <- f(x)",
    "res": "x <- x + f(x)",
    "post": "x <- LayerNorm(x + f(x))",
    "pre": "x <- x + f(LayerNorm(x))",
}
WIDTH = 8
MOST = 30


def draw(seed: int, n: int) -> tuple[Array, Array]:
    """The first vector [8] and n matrices [n, 8, 8], normal numbers of variance 1 and 1/8; 30 are always drawn."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=WIDTH)
    return x, generator.normal(size=(MOST, WIDTH, WIDTH))[:n] / math.sqrt(WIDTH)


def mean_factors(jacobians: Sequence[Array]) -> list[float]:
    """By what each Jacobian [8, 8] multiplies a small change: the root mean square over the 8 directions."""
    return np.sqrt((np.stack(jacobians) ** 2).sum((1, 2)) / WIDTH).tolist()
