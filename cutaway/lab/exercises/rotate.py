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
    # Turn the pair v = [x, y] counter-clockwise by pos * theta radians.
    return v
"""

EXERCISE = Exercise(
    id="rotate",
    title="A rotation",
    function="rotate",
    signature="rotate(v, pos, theta)",
    prompt="Turn the pair `v = [x, y]` counter-clockwise by `pos * theta` radians and return the new pair.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "With a for the angle the new pair is [x cos a - y sin a, x sin a + y cos a].",
        "`np.cos` and `np.sin` take radians.",
        "Both new numbers are made from the old x and y.",
    ),
    cases=(
        Case("[1, 0] at position 2 with theta 0.5", (array(1, 0), 2, 0.5)),
        Case("position 0, where nothing turns", (array(3, -4), 0, 0.7)),
        Case("[3, -4] at position 5 with theta 0.3", (array(3, -4), 5, 0.3)),
        Case("the position -2", (array(1, 0), -2, 0.5)),
    ),
    mistakes=(
        Mistake(
            "clockwise",
            swap(SOLUTION, ("angle = pos", "angle = -pos")),
            "Your pair turns clockwise. Counter-clockwise the minus sign stands at y sin a, in the first number.",
        ),
        Mistake(
            "degrees",
            swap(SOLUTION, ("pos * theta", "np.radians(pos * theta)")),
            "pos * theta is in radians already: do not convert it from degrees.",
        ),
        Mistake(
            "x overwritten",
            swap(
                SOLUTION,
                ("    return np.array([", "    x = "),
                (" - y * np.sin(angle), x * np", " - y * np.sin(angle)\n    y = x * np"),
                ("y * np.cos(angle)])", "y * np.cos(angle)\n    return np.array([x, y])"),
            ),
            "The new x went into the new y. Keep the old x until both are computed.",
        ),
        Mistake(
            "position left out",
            swap(SOLUTION, ("pos * theta", "theta")),
            "Every position turns by the same angle. The angle is pos * theta.",
        ),
        Mistake(
            "both signs plus",
            swap(SOLUTION, ("np.cos(angle) - y", "np.cos(angle) + y")),
            "With two plus signs the length changes. The first number is x cos a - y sin a.",
        ),
        Mistake(
            "sine and cosine swapped",
            swap(SOLUTION, ("cos", "SIN"), ("sin", "cos"), ("SIN", "sin")),
            "Sine and cosine are swapped: at angle 0 the pair must stay as it is, and cos 0 is 1.",
        ),
    ),
)
