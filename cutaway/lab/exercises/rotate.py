"""A pair of numbers turned by its position."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, swap

SOLUTION = """\
import numpy as np


def rotate(v, pos, theta):
    angle = pos * theta
    x, y = v
    return np.array([x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)])
"""
STARTER = """\
import numpy as np


def rotate(v, pos, theta):
    «rotate»
    return v
"""

EXERCISE = Exercise(
    id="rotate",
    function="rotate",
    signature="rotate(v, pos, theta)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case((array(1, 0), 2, 0.5)),
        Case((array(3, -4), 0, 0.7)),
        Case((array(3, -4), 5, 0.3)),
        Case((array(1, 0), -2, 0.5)),
    ),
    mistakes=(
        Mistake("clockwise", swap(SOLUTION, ("angle = pos", "angle = -pos"))),
        Mistake("degrees", swap(SOLUTION, ("pos * theta", "np.radians(pos * theta)"))),
        Mistake(
            "x overwritten",
            swap(
                SOLUTION,
                ("    return np.array([", "    x = "),
                (" - y * np.sin(angle), x * np", " - y * np.sin(angle)\n    y = x * np"),
                ("y * np.cos(angle)])", "y * np.cos(angle)\n    return np.array([x, y])"),
            ),
        ),
        Mistake("position left out", swap(SOLUTION, ("pos * theta", "theta"))),
        Mistake("both signs plus", swap(SOLUTION, ("np.cos(angle) - y", "np.cos(angle) + y"))),
        Mistake("sine and cosine swapped", swap(SOLUTION, ("cos", "SIN"), ("sin", "cos"), ("SIN", "sin"))),
    ),
)
