"""The feed-forward network as a sublayer with its residual."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def ffn_sublayer(X, W1, b1, W2, b2):
    hidden = np.maximum(0, X @ W1 + b1)
    return X + hidden @ W2 + b2
"""
STARTER = """\
import numpy as np


def ffn_sublayer(X, W1, b1, W2, b2):
    «ffn_sublayer»
    return X
"""
W1, B1 = array([1, -1, 0, 1], [0, 1, -1, 1]), array(0, 0, 1, -2)
W2 = array([1, 0], [0, 1], [-1, 1], [1, 1])
WORDS = array([2, 0], [1, 1], [0, 2])

EXERCISE = Exercise(
    id="ffn-sublayer",
    function="ffn_sublayer",
    signature="ffn_sublayer(X, W1, b1, W2, b2)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((WORDS, W1, B1, W2, array(0, 0))),
        Case((array([3, 1], [-1, 4]), W1, B1, W2, array(0, 0))),
        Case((WORDS, W1, B1, W2, array(10, -10))),
        Case((numbers(2, 5, 3), numbers(3, 3, 7), numbers(4, 7), numbers(5, 7, 3), numbers(6, 3))),
    ),
    mistakes=(
        Mistake("no residual", swap(SOLUTION, ("X + hidden", "hidden"))),
        Mistake("no ReLU", swap(SOLUTION, ("np.maximum(0, X @ W1 + b1)", "X @ W1 + b1"))),
        Mistake(
            "ReLU after W2",
            swap(
                SOLUTION,
                ("np.maximum(0, X @ W1 + b1)", "X @ W1 + b1"),
                ("hidden @ W2 + b2", "np.maximum(0, hidden @ W2 + b2)"),
            ),
        ),
        Mistake("b2 left out", swap(SOLUTION, (" + b2", ""))),
        Mistake("b1 left out", swap(SOLUTION, (" + b1", ""))),
        Mistake(
            "residual before ReLU", swap(SOLUTION, ("X + hidden @ W2 + b2", "np.maximum(0, X + hidden @ W2 + b2)"))
        ),
        Mistake(
            "residual inside", swap(SOLUTION, ("X + hidden", "hidden"), ("    hidden =", "    X = X + X\n    hidden ="))
        ),
    ),
)
