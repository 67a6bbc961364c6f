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
    # Mean and std belong to a word: take them along the last axis of x.
    # eps is a small number that keeps the division safe when all numbers of a word are equal.
    return x
"""
SPREAD = "variance = x.var(axis=-1, keepdims=True)"

EXERCISE = Exercise(
    id="layer-norm",
    title="LayerNorm",
    function="layer_norm",
    signature="layer_norm(x, eps=1e-5)",
    prompt="Give the numbers of every word a mean of 0 and a standard deviation of 1. A word is the **last axis** of `x`; any "  # noqa: E501
    "number of axes may stand before it. A word whose numbers are all equal becomes zeros.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`x.mean(axis=-1)` is one mean a word; `keepdims=True` keeps the axis, so that it can be subtracted.",
        "The standard deviation is the square root of the mean squared distance from the mean: `x.std` or `x.var`.",
        "Put `eps` inside the root, or add it to the standard deviation.",
    ),
    cases=(
        Case("two words of four numbers", (array([1, 1, 5, 5], [1, 2, 3, 6]),)),
        Case("two sentences of two words", (array([[0, 4], [4, 0]], [[3, 1], [-2, 10]]),)),
        Case("as many words as numbers", (numbers(1, 4, 4),)),
        Case("a single word without further axes", (array(1, 2, 3, 6),)),
        Case("a word whose numbers are all equal", (array([1, 1], [2, 6]),)),
    ),
    mistakes=(
        Mistake(
            "first axis",
            swap(SOLUTION, ("axis=-1", "axis=0")),
            "You average over axis 0, across the words. LayerNorm looks at one word's own numbers: axis -1.",
        ),
        Mistake(
            "second axis",
            swap(SOLUTION, ("axis=-1", "axis=1")),
            "Axis 1 is the last one only when x has two axes. Count from the end: axis=-1.",
        ),
        Mistake(
            "whole array",
            swap(SOLUTION, ("axis=-1, keepdims=True", "")),
            "You take one mean over the whole array. Every word has a mean and a std of its own: axis=-1.",
        ),
        Mistake(
            "no keepdims",
            swap(SOLUTION, (", keepdims=True", "")),
            "The mean lost its axis, so it is subtracted from the wrong numbers. Keep it with keepdims=True.",
        ),
        Mistake(
            "variance",
            swap(SOLUTION, ("np.sqrt(variance + eps)", "(variance + eps)")),
            "You divide by the variance. The standard deviation is its square root.",
        ),
        Mistake(
            "n - 1",
            swap(SOLUTION, (SPREAD, "variance = x.var(axis=-1, keepdims=True, ddof=1)")),
            "You divide the squares by n - 1. LayerNorm divides by n: leave out ddof.",
        ),
        Mistake(
            "no eps",
            swap(SOLUTION, ("variance + eps", "variance")),
            "A word whose numbers are all equal has std 0, and 0 / 0 is nan. Use eps.",
        ),
        Mistake(
            "not centred",
            swap(SOLUTION, ("(x - mean)", "x")),
            "The mean is still in there. Subtract it before you divide.",
        ),
        Mistake(
            "not divided",
            swap(SOLUTION, (" / np.sqrt(variance + eps)", "")),
            "The mean is gone, but the spread is still the old one: divide by the standard deviation.",
        ),
    ),
)
