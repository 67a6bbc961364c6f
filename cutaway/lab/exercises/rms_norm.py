"""RMSNorm over the last axis."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def rms_norm(x, eps=1e-6):
    mean_square = np.mean(x**2, axis=-1, keepdims=True)
    return x / np.sqrt(mean_square + eps)
"""
STARTER = """\
import numpy as np


def rms_norm(x, eps=1e-6):
    «rms_norm»
    return x
"""

EXERCISE = Exercise(
    id="rms-norm",
    function="rms_norm",
    signature="rms_norm(x, eps=1e-6)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((array([1, 1, 3, 5], [3, -4, 0, 0]),)),
        Case((array([[2, 0], [0, 4]], [[3, 4], [-1, 1]]),)),
        Case((numbers(1, 3, 3),)),
        Case((array(1, 1, 3, 5),)),
        Case((array([0, 0, 0, 0], [2, 2, 2, 2]),)),
    ),
    mistakes=(
        Mistake(
            "mean subtracted",
            swap(SOLUTION, ("    mean_square", "    x = x - x.mean(axis=-1, keepdims=True)\n    mean_square")),
        ),
        Mistake("first axis", swap(SOLUTION, ("axis=-1", "axis=0"))),
        Mistake("no keepdims", swap(SOLUTION, (", keepdims=True", ""))),
        Mistake("sum for mean", swap(SOLUTION, ("np.mean", "np.sum"))),
        Mistake("no eps", swap(SOLUTION, ("mean_square + eps", "mean_square"))),
        Mistake("no root", swap(SOLUTION, ("np.sqrt(mean_square + eps)", "(mean_square + eps)"))),
        Mistake("whole array", swap(SOLUTION, (", axis=-1, keepdims=True", ""))),
    ),
)
