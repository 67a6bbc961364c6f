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
    # Two lines: the hidden layer, then the result with X added.
    return X
"""
W1, B1 = array([1, -1, 0, 1], [0, 1, -1, 1]), array(0, 0, 1, -2)
W2 = array([1, 0], [0, 1], [-1, 1], [1, 1])
WORDS = array([2, 0], [1, 1], [0, 2])

EXERCISE = Exercise(
    id="ffn-sublayer",
    title="The feed-forward sublayer",
    function="ffn_sublayer",
    signature="ffn_sublayer(X, W1, b1, W2, b2)",
    prompt="Widen each row of `X` with `W1` and `b1`, put ReLU on it, narrow it back with `W2` and `b2`, then add `X`.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`X @ W1 + b1` is the hidden layer before ReLU; NumPy adds `b1` to every row.",
        "ReLU is `np.maximum(0, ...)`, on the hidden layer alone.",
    ),
    cases=(
        Case("three words", (WORDS, W1, B1, W2, array(0, 0))),
        Case("words that turn the fourth unit on", (array([3, 1], [-1, 4]), W1, B1, W2, array(0, 0))),
        Case("a b2 that is not zero", (WORDS, W1, B1, W2, array(10, -10))),
        Case("other widths", (numbers(2, 5, 3), numbers(3, 3, 7), numbers(4, 7), numbers(5, 7, 3), numbers(6, 3))),
    ),
    mistakes=(
        Mistake(
            "no residual",
            swap(SOLUTION, ("X + hidden", "hidden")),
            "X is missing in the result: the sublayer returns x + f(x).",
        ),
        Mistake(
            "no ReLU",
            swap(SOLUTION, ("np.maximum(0, X @ W1 + b1)", "X @ W1 + b1")),
            "Negative hidden numbers got through: put ReLU, np.maximum(0, ...), on the hidden layer.",
        ),
        Mistake(
            "ReLU after W2",
            swap(
                SOLUTION,
                ("np.maximum(0, X @ W1 + b1)", "X @ W1 + b1"),
                ("hidden @ W2 + b2", "np.maximum(0, hidden @ W2 + b2)"),
            ),
            "Your ReLU comes after W2. It belongs on the hidden layer, between W1 and W2.",
        ),
        Mistake("b2 left out", swap(SOLUTION, (" + b2", "")), "b2 is missing: the second matrix has a bias too."),
        Mistake(
            "b1 left out", swap(SOLUTION, (" + b1", "")), "b1 is missing: it decides, before ReLU, which units are on."
        ),
        Mistake(
            "residual before ReLU",
            swap(SOLUTION, ("X + hidden @ W2 + b2", "np.maximum(0, X + hidden @ W2 + b2)")),
            "You put ReLU on the sum with X. X must pass untouched: ReLU is for the hidden layer alone.",
        ),
        Mistake(
            "residual inside",
            swap(SOLUTION, ("X + hidden", "hidden"), ("    hidden =", "    X = X + X\n    hidden =")),
            "X was added before the network read it. Add it to the network's output.",
        ),
    ),
)
