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
    # The root of the mean of the squares, over the last axis. No mean is subtracted.
    return x
"""

EXERCISE = Exercise(
    id="rms-norm",
    title="RMSNorm",
    function="rms_norm",
    signature="rms_norm(x, eps=1e-6)",
    prompt="Divide each word's numbers by their root mean square. A word is the **last axis** of `x`; any number of "
    "axes may stand before it. A word of zeros stays zeros.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "Square, take the mean over axis -1, take the root: in this order.",
        "`keepdims=True` keeps the axis, so that no word is divided by the number of another.",
        "`eps` inside the root keeps a word of zeros from 0 / 0.",
    ),
    cases=(
        Case("two words of four numbers", (array([1, 1, 3, 5], [3, -4, 0, 0]),)),
        Case("two sentences of two words", (array([[2, 0], [0, 4]], [[3, 4], [-1, 1]]),)),
        Case("as many words as numbers", (numbers(1, 3, 3),)),
        Case("a single word without further axes", (array(1, 1, 3, 5),)),
        Case("a word of zeros", (array([0, 0, 0, 0], [2, 2, 2, 2]),)),
    ),
    mistakes=(
        Mistake(
            "mean subtracted",
            swap(SOLUTION, ("    mean_square", "    x = x - x.mean(axis=-1, keepdims=True)\n    mean_square")),
            "You subtract the mean first. That is LayerNorm; RMSNorm leaves the mean where it is.",
        ),
        Mistake(
            "first axis",
            swap(SOLUTION, ("axis=-1", "axis=0")),
            "You average over axis 0, across the words. Every word has a root mean square of its own: axis -1.",
        ),
        Mistake(
            "no keepdims",
            swap(SOLUTION, (", keepdims=True", "")),
            "The mean lost its axis, so words are divided by one another's numbers. Keep it with keepdims=True.",
        ),
        Mistake(
            "sum for mean",
            swap(SOLUTION, ("np.mean", "np.sum")),
            "You add the squares up. Take their mean: otherwise the result shrinks with the width.",
        ),
        Mistake(
            "no eps",
            swap(SOLUTION, ("mean_square + eps", "mean_square")),
            "A word of zeros gives 0 / 0, which is nan. Use eps.",
        ),
        Mistake(
            "no root",
            swap(SOLUTION, ("np.sqrt(mean_square + eps)", "(mean_square + eps)")),
            "You divide by the mean square. Its root is missing.",
        ),
        Mistake(
            "whole array",
            swap(SOLUTION, (", axis=-1, keepdims=True", "")),
            "One number for the whole array is not enough: every word has its own. Use axis=-1.",
        ),
    ),
)
