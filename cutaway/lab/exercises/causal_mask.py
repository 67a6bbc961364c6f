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
    «masked_weights»
    return scores
"""

EXERCISE = Exercise(
    id="causal-mask",
    function="masked_weights",
    signature="masked_weights(scores)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((array(*SCORES),)),
        Case((array([-3, -1, -2], [-5, -4, -9], [-2, -8, -6]),)),
        Case((numbers(2, 2, 3, 3),)),
        Case((array([900, 0, 0], [0, 900, 800], [800, 0, 900]),)),
        Case((array([5]),)),
    ),
    mistakes=(
        Mistake(
            "zero for minus infinity",
            swap(SOLUTION, ("np.where(future, -np.inf, scores)", "np.where(future, 0.0, scores)")),
        ),
        Mistake("the past hidden", swap(SOLUTION, ("np.triu(", "np.tril("), ("k=1", "k=-1"))),
        Mistake("itself hidden", swap(SOLUTION, ("k=1", "k=0"))),
        Mistake(
            "mask after softmax",
            swap(
                SOLUTION,
                ("    scores = np.where(future, -np.inf, scores)\n", ""),
                (
                    "return powers / powers.sum(axis=-1, keepdims=True)",
                    "return np.where(future, 0.0, powers / powers.sum(axis=-1, keepdims=True))",
                ),
            ),
        ),
        Mistake("softmax over the queries", swap(SOLUTION, ("axis=-1", "axis=-2"))),
        Mistake("no mask", swap(SOLUTION, ("    scores = np.where(future, -np.inf, scores)\n", ""))),
        Mistake("overflow", swap(SOLUTION, (" - scores.max(axis=-1, keepdims=True)", ""))),
    ),
)
