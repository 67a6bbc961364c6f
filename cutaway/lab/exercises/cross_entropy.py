"""Cross-entropy and its gradient."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def cross_entropy(logits, targets):
    rows = np.arange(len(targets))
    logits = logits - logits.max(axis=-1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    loss = -log_p[rows, targets].mean()
    gradient = p.copy()
    gradient[rows, targets] -= 1
    return loss, gradient / len(targets)
"""
STARTER = """\
import numpy as np


def cross_entropy(logits, targets):
    «cross_entropy»
    return 0.0, np.zeros_like(logits)
"""

EXERCISE = Exercise(
    id="cross-entropy",
    function="cross_entropy",
    signature="cross_entropy(logits, targets)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((array([2, 1, 0], [0, 0, 3]), [0, 1])),
        Case((array([1, 1, 1, 1], [5, 5, 5, 5], [0, 0, 0, 0]), [3, 0, 2])),
        Case((numbers(1, 4, 4), [1, 0, 3, 3])),
        Case((array([3000, 0], [0, 2000]), [0, 0])),
    ),
    mistakes=(
        Mistake("sum for mean", swap(SOLUTION, (".mean()", ".sum()"), (" / len(targets)", ""))),
        Mistake("gradient not divided", swap(SOLUTION, (" / len(targets)", ""))),
        Mistake("gradient's sign", swap(SOLUTION, ("gradient / len", "-gradient / len"))),
        Mistake("nothing subtracted", swap(SOLUTION, ("    gradient[rows, targets] -= 1\n", ""))),
        Mistake("loss's sign", swap(SOLUTION, ("-log_p", "log_p"))),
        Mistake("base 2", swap(SOLUTION, (".mean()", ".mean() / np.log(2)"))),
        Mistake("overflow", swap(SOLUTION, ("    logits = logits - logits.max(axis=-1, keepdims=True)\n", ""))),
        Mistake(
            "log of 0",
            swap(
                SOLUTION, ("log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))", "log_p = np.log(p)")
            ),
        ),
        Mistake("softmax over the rows", swap(SOLUTION, ("axis=-1", "axis=0"))),
    ),
)
