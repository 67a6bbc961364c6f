"""Skip test of `encoder-decoder`: the grid across, its weights, a block's weights, norms, and runs of the encoder."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, row, whole
from cutaway.reference.attention import attend
from cutaway.reference.functions import softmax


def grid(rng: np.random.Generator) -> Fresh:
    """Heads, target, source."""
    source, target, heads = whole(rng, 10, 30), whole(rng, 2, 6), whole(rng, 7, 9)
    q, k = np.zeros((heads, target, 4)), np.zeros((heads, source, 4))
    weights = attend(q, k, k)[1]
    wrong = {
        "turned": [heads, source, target], "encoder": [heads, source, source], "decoder": [heads, target, target],
    }  # fmt: skip
    return Fresh({"S": str(source), "T": str(target), "h": str(heads)}, list(weights.shape), wrong)


def weight(rng: np.random.Generator) -> Fresh:
    """A row without a mask."""
    scores = rng.integers(-2, 4, 3).astype(np.float64)
    weights = softmax(scores)
    wrong = {"first": float(weights[0]), "masked": float(softmax(scores[1:])[1])}
    return Fresh({"scores": row(scores)}, float(weights[2]), wrong, TWO_DECIMALS)


def block(rng: np.random.Generator) -> Fresh:
    """8 d^2 + 2 d f."""
    d = 16 * whole(rng, 2, 20)
    f = d * whole(rng, 2, 5)
    wrong = {"encoder": 4.0 * d * d + 2 * d * f, "attention": 8.0 * d * d}
    return Fresh({"d": str(d), "f": str(f)}, 8.0 * d * d + 2 * d * f, wrong)


def norms(rng: np.random.Generator) -> Fresh:
    """Five for a pair of blocks."""
    n = whole(rng, 3, 24)
    return Fresh({"n": str(n)}, 5.0 * n, {"cross": 4.0 * n, "encoder": 2.0 * n})


def steps(rng: np.random.Generator) -> Fresh:
    """Tokens through the encoder."""
    source, target = whole(rng, 10, 60), whole(rng, 5, 40)
    wrong = {"each": float(source * target), "both": float(source + target)}
    return Fresh({"S": str(source), "T": str(target)}, float(source), wrong)


TESTS = {"grid": grid, "weight": weight, "block": block, "norms": norms, "steps": steps}
