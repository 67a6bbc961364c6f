"""The gated feed-forward network."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def swiglu(x, W_gate, W_up, W_down):
    gate = x @ W_gate
    gate = gate / (1 + np.exp(-gate))
    return (gate * (x @ W_up)) @ W_down
"""
STARTER = """\
import numpy as np


def swiglu(x, W_gate, W_up, W_down):
    «swiglu»
    return x
"""
SILU, PRODUCT = "gate / (1 + np.exp(-gate))", "(gate * (x @ W_up)) @ W_down"

EXERCISE = Exercise(
    id="swiglu",
    function="swiglu",
    signature="swiglu(x, W_gate, W_up, W_down)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case(
            (
                array([1, 0], [0, 1], [1, -1]),
                array([1, 0, -1], [0, 2, 1]),
                array([2, 1, 1], [1, -1, 3]),
                array([1, 0], [0, 1], [1, 1]),
            )
        ),
        Case((array([1]), array([-1]), array([2]), array([1]))),
        Case((numbers(1, 3, 2), numbers(2, 2, 3), numbers(3, 2, 3), numbers(4, 3, 2))),
        Case((numbers(5, 2, 3, 2), numbers(6, 2, 5), numbers(7, 2, 5), numbers(8, 5, 2))),
    ),
    mistakes=(
        Mistake(
            "SiLU on the value",
            swap(SOLUTION, ("gate = x @ W_gate", "gate = x @ W_up"), ("(x @ W_up)", "(x @ W_gate)")),
        ),
        Mistake("matrix product", swap(SOLUTION, (PRODUCT, "(gate @ (x @ W_up)) @ W_down"))),
        Mistake("sigmoid for SiLU", swap(SOLUTION, (SILU, "1 / (1 + np.exp(-gate))"))),
        Mistake("ReLU for SiLU", swap(SOLUTION, (SILU, "np.maximum(0, gate)"))),
        Mistake(
            "two axes only", swap(SOLUTION, ("    gate = x @ W_gate\n", "    L, d = x.shape\n    gate = x @ W_gate\n"))
        ),
        Mistake("no gate", swap(SOLUTION, (PRODUCT, "(x @ W_up) @ W_down"))),
        Mistake("SiLU on both", swap(SOLUTION, ("(x @ W_up)", "(x @ W_up / (1 + np.exp(-(x @ W_up))))"))),
    ),
)
