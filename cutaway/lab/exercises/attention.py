"""Scaled dot-product attention."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def attention(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores = scores - scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights @ v
"""
STARTER = """\
import numpy as np


def attention(q, k, v):
    # q (T, d), k (S, d), v (S, e). Scores, divided by the root of d; softmax of each row; a weighted sum of the values.
    return v
"""
WORDS = array([2, 0], [1, 1], [0, 2])

EXERCISE = Exercise(
    id="attention",
    title="Attention",
    function="attention",
    signature="attention(q, k, v)",
    prompt="Write softmax(q kᵀ / √d) v for `q` of shape (T, d), `k` (S, d) and `v` (S, e). The result has the shape "
    "(T, e). Scores may be large: no nan, please.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`q @ k.T` holds the score of every query (row) with every key (column).",
        "Softmax goes along a row: exp, divided by the row's sum, with `axis=-1, keepdims=True`.",
        "Subtract each row's largest score before exp: the result is the same, and exp cannot overflow.",
    ),
    cases=(
        Case("cat, dog and car as q, k and v", (WORDS, WORDS, WORDS)),
        Case("two queries, three keys and wider values", (numbers(1, 2, 4), numbers(2, 3, 4), numbers(3, 3, 5))),
        Case("as many keys as numbers", (numbers(4, 3, 3), numbers(5, 3, 3), numbers(6, 3, 3))),
        Case("scores in the thousands", (array([1000, 0], [0, 1000]), array([3, 1], [1, 3]), array([1, 2], [3, 4]))),
    ),
    mistakes=(
        Mistake(
            "not scaled",
            swap(SOLUTION, (" / np.sqrt(q.shape[-1])", "")),
            "The scores are not divided by the root of d, so the softmax is too sharp.",
        ),
        Mistake(
            "divided by d",
            swap(SOLUTION, ("np.sqrt(q.shape[-1])", "q.shape[-1]")),
            "You divide by d. Divide by its root.",
        ),
        Mistake(
            "softmax over the queries",
            swap(SOLUTION, ("axis=-1", "axis=0")),
            "Your softmax runs down the columns. Each query's weights, a row, must add up to 1: axis=-1.",
        ),
        Mistake(
            "overflow",
            swap(SOLUTION, ("    scores = scores - scores.max(axis=-1, keepdims=True)\n", "")),
            "exp of a large score is infinite, and inf / inf is nan. Subtract each row's maximum first.",
        ),
        Mistake(
            "no softmax",
            swap(SOLUTION, ("np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)", "scores"),
                 ("    scores = scores - scores.max(axis=-1, keepdims=True)\n", "")),
            "The raw scores weigh the values. They must become weights first: softmax.",
        ),
        Mistake(
            "root of the number of keys",
            swap(SOLUTION, ("np.sqrt(q.shape[-1])", "np.sqrt(k.shape[0])")),
            "You divide by the root of the number of keys. d is the width of q and k, the last axis.",
        ),
        Mistake(
            "keys for values",
            swap(SOLUTION, ("weights @ v", "weights @ k")),
            "You sum the keys. The weights are for the values, v.",
        ),
    ),
)  # fmt: skip
