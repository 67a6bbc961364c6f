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
    «attention»
    return v
"""
WORDS = array([2, 0], [1, 1], [0, 2])

EXERCISE = Exercise(
    id="attention",
    function="attention",
    signature="attention(q, k, v)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((WORDS, WORDS, WORDS)),
        Case((numbers(1, 2, 4), numbers(2, 3, 4), numbers(3, 3, 5))),
        Case((numbers(4, 3, 3), numbers(5, 3, 3), numbers(6, 3, 3))),
        Case((array([1000, 0], [0, 1000]), array([3, 1], [1, 3]), array([1, 2], [3, 4]))),
    ),
    mistakes=(
        Mistake("not scaled", swap(SOLUTION, (" / np.sqrt(q.shape[-1])", ""))),
        Mistake("divided by d", swap(SOLUTION, ("np.sqrt(q.shape[-1])", "q.shape[-1]"))),
        Mistake("softmax over the queries", swap(SOLUTION, ("axis=-1", "axis=0"))),
        Mistake("overflow", swap(SOLUTION, ("    scores = scores - scores.max(axis=-1, keepdims=True)\n", ""))),
        Mistake(
            "no softmax",
            swap(
                SOLUTION,
                ("np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)", "scores"),
                ("    scores = scores - scores.max(axis=-1, keepdims=True)\n", ""),
            ),
        ),
        Mistake("root of the number of keys", swap(SOLUTION, ("np.sqrt(q.shape[-1])", "np.sqrt(k.shape[0])"))),
        Mistake("keys for values", swap(SOLUTION, ("weights @ v", "weights @ k"))),
    ),
)
