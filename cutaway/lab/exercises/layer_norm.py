"""LayerNorm over the last axis."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def layer_norm(x, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps)
"""
STARTER = """\
import numpy as np


def layer_norm(x, eps=1e-5):
    «layer_norm»
    return x
"""
SPREAD = "variance = x.var(axis=-1, keepdims=True)"

EXERCISE = Exercise(
    id="layer-norm",
    function="layer_norm",
    signature="layer_norm(x, eps=1e-5)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((array([1, 1, 5, 5], [1, 2, 3, 6]),)),
        Case((array([[0, 4], [4, 0]], [[3, 1], [-2, 10]]),)),
        Case((numbers(1, 4, 4),)),
        Case((array(1, 2, 3, 6),)),
        Case((array([1, 1], [2, 6]),)),
    ),
    mistakes=(
        Mistake("first axis", swap(SOLUTION, ("axis=-1", "axis=0"))),
        Mistake("second axis", swap(SOLUTION, ("axis=-1", "axis=1"))),
        Mistake("whole array", swap(SOLUTION, ("axis=-1, keepdims=True", ""))),
        Mistake("no keepdims", swap(SOLUTION, (", keepdims=True", ""))),
        Mistake("variance", swap(SOLUTION, ("np.sqrt(variance + eps)", "(variance + eps)"))),
        Mistake("n - 1", swap(SOLUTION, (SPREAD, "variance = x.var(axis=-1, keepdims=True, ddof=1)"))),
        Mistake("no eps", swap(SOLUTION, ("variance + eps", "variance"))),
        Mistake("not centred", swap(SOLUTION, ("(x - mean)", "x"))),
        Mistake("not divided", swap(SOLUTION, (" / np.sqrt(variance + eps)", ""))),
    ),
)
