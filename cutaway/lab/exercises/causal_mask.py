"""The causal mask and the softmax behind it."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap
from cutaway.lab.labs.mask import SCORES

SOLUTION = """\
import numpy as np


def masked_weights(scores):
    length = scores.shape[-1]
    future = np.triu(np.ones((length, length), dtype=bool), k=1)
    scores = np.where(future, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
"""
STARTER = """\
import numpy as np


def masked_weights(scores):
    # scores (..., L, L): row = query, column = key. Hide every key after the query, then softmax each row.
    return scores
"""

EXERCISE = Exercise(
    id="causal-mask",
    title="The causal mask",
    function="masked_weights",
    signature="masked_weights(scores)",
    prompt="`scores` has the shape (..., L, L): a row a query, a column a key. Hide from each query the keys after it "
    "and return the softmax of each row. Hidden keys get exactly 0.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`np.triu(..., k=1)` is the part above the diagonal: the future.",
        "Put minus infinity there before softmax: exp of it is exactly 0.",
        "A query sees itself: the diagonal is not hidden.",
    ),
    cases=(
        Case("four tokens", (array(*SCORES),)),
        Case("scores that are all negative", (array([-3, -1, -2], [-5, -4, -9], [-2, -8, -6]),)),
        Case("two heads", (numbers(2, 2, 3, 3),)),
        Case("large scores", (array([900, 0, 0], [0, 900, 800], [800, 0, 900]),)),
        Case("a single token", (array([5]),)),
    ),
    mistakes=(
        Mistake(
            "zero for minus infinity",
            swap(SOLUTION, ("np.where(future, -np.inf, scores)", "np.where(future, 0.0, scores)")),
            "A score of 0 is not hidden: exp(0) is 1. Put -np.inf there.",
        ),
        Mistake(
            "the past hidden",
            swap(SOLUTION, ("np.triu(", "np.tril("), ("k=1", "k=-1")),
            "You hide the past. The future is above the diagonal: np.triu with k=1.",
        ),
        Mistake(
            "itself hidden",
            swap(SOLUTION, ("k=1", "k=0")),
            "You hide the diagonal too, so a token does not see itself and the first one sees nothing. Use k=1.",
        ),
        Mistake(
            "mask after softmax",
            swap(SOLUTION, ("    scores = np.where(future, -np.inf, scores)\n", ""),
                 ("return powers / powers.sum(axis=-1, keepdims=True)",
                  "return np.where(future, 0.0, powers / powers.sum(axis=-1, keepdims=True))")),
            "You mask after softmax, so the rows no longer add up to 1. Mask the scores before it.",
        ),
        Mistake(
            "softmax over the queries",
            swap(SOLUTION, ("axis=-1", "axis=-2")),
            "Your softmax runs down the columns. Each row must add up to 1: axis=-1.",
        ),
        Mistake(
            "no mask",
            swap(SOLUTION, ("    scores = np.where(future, -np.inf, scores)\n", "")),
            "Nothing is hidden: every token still sees those after it.",
        ),
        Mistake(
            "overflow",
            swap(SOLUTION, (" - scores.max(axis=-1, keepdims=True)", "")),
            "exp of a large score is infinite, and inf / inf is nan. Subtract each row's maximum first.",
        ),
    ),
)  # fmt: skip
