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
    # Columns 2k and 2k + 1 of row pos: sine and cosine of pos / 10000 ** (2k / d_model). d_model is even.
    return np.zeros((length, d_model))
"""

EXERCISE = Exercise(
    id="positional-encoding",
    title="The position table",
    function="positional_encoding",
    signature="positional_encoding(length, d_model)",
    prompt="Return the table of shape `(length, d_model)` whose row `pos` holds, in columns 2k and 2k + 1, the sine "
    "and the cosine of `pos / 10000 ** (2k / d_model)`. Rows count from 0; `d_model` is even.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`np.arange(length)[:, None]` is a column: divided by a row of speeds it gives a whole table of angles.",
        "There are d_model / 2 pairs: `k = np.arange(d_model // 2)`.",
        "`table[:, 0::2]` are the even columns, `table[:, 1::2]` the odd ones.",
    ),
    cases=(
        Case("three positions of two numbers", (3, 2)),
        Case("four positions of four numbers", (4, 4)),
        Case("sixteen positions of eight numbers", (16, 8)),
        Case("one position of six numbers", (1, 6)),
    ),
    mistakes=(
        Mistake(
            "sine and cosine swapped",
            swap(SOLUTION, ("np.sin", "np.COS"), ("np.cos", "np.sin"), ("np.COS", "np.cos")),
            "Sine and cosine are swapped: even columns hold the sine, so that row 0 is 0, 1, 0, 1.",
        ),
        Mistake(
            "exponent k",
            swap(SOLUTION, ("(2 * k / d_model)", "(k / d_model)")),
            "The exponent of pair k is 2k / d_model; yours is half of that, so the slow pairs are too fast.",
        ),
        Mistake(
            "a speed a column",
            swap(
                SOLUTION,
                ("k = np.arange(d_model // 2)", "k = np.arange(d_model)"),
                ("np.sin(angle)", "np.sin(angle[:, 0::2])"),
                ("np.cos(angle)", "np.cos(angle[:, 1::2])"),
            ),
            "Every column has a speed of its own. Two columns share one: the sine and cosine of the same angle.",
        ),
        Mistake(
            "two halves",
            swap(SOLUTION, ("[:, 0::2]", "[:, : d_model // 2]"), ("[:, 1::2]", "[:, d_model // 2 :]")),
            "All sines come first, then all cosines. Here they alternate: sine, cosine, sine, cosine.",
        ),
        Mistake(
            "counting from 1",
            swap(SOLUTION, ("np.arange(length)[:", "np.arange(1, length + 1)[:")),
            "Your first row is position 1. Positions count from 0.",
        ),
        Mistake(
            "multiplied",
            swap(SOLUTION, ("pos / 10000", "pos * 10000.0")),
            "You multiply by the power of 10000. Divide by it: later pairs turn more slowly.",
        ),
        Mistake(
            "transposed",
            swap(SOLUTION, ("return table", "return table.T")),
            "Rows and columns are swapped: the shape is (length, d_model), a row a position.",
        ),
    ),
)
