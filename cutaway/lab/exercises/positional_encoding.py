"""The sines and cosines of positions."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, swap

SOLUTION = """\
import numpy as np


def positional_encoding(length, d_model):
    pos = np.arange(length)[:, None]
    k = np.arange(d_model // 2)
    angle = pos / 10000 ** (2 * k / d_model)
    table = np.zeros((length, d_model))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return table
"""
STARTER = """\
import numpy as np


def positional_encoding(length, d_model):
    «positional_encoding»
    return np.zeros((length, d_model))
"""

EXERCISE = Exercise(
    id="positional-encoding",
    function="positional_encoding",
    signature="positional_encoding(length, d_model)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(Case((3, 2)), Case((4, 4)), Case((16, 8)), Case((1, 6))),
    mistakes=(
        Mistake(
            "sine and cosine swapped", swap(SOLUTION, ("np.sin", "np.COS"), ("np.cos", "np.sin"), ("np.COS", "np.cos"))
        ),
        Mistake("exponent k", swap(SOLUTION, ("(2 * k / d_model)", "(k / d_model)"))),
        Mistake(
            "a speed a column",
            swap(
                SOLUTION,
                ("k = np.arange(d_model // 2)", "k = np.arange(d_model)"),
                ("np.sin(angle)", "np.sin(angle[:, 0::2])"),
                ("np.cos(angle)", "np.cos(angle[:, 1::2])"),
            ),
        ),
        Mistake(
            "two halves", swap(SOLUTION, ("[:, 0::2]", "[:, : d_model // 2]"), ("[:, 1::2]", "[:, d_model // 2 :]"))
        ),
        Mistake("counting from 1", swap(SOLUTION, ("np.arange(length)[:", "np.arange(1, length + 1)[:"))),
        Mistake("multiplied", swap(SOLUTION, ("pos / 10000", "pos * 10000.0"))),
        Mistake("transposed", swap(SOLUTION, ("return table", "return table.T"))),
    ),
)
