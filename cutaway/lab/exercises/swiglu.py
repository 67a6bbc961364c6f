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
    # SiLU(z) = z * sigmoid(z) = z / (1 + exp(-z)). The gate goes through it, the value does not.
    return x
"""
SILU, PRODUCT = "gate / (1 + np.exp(-gate))", "(gate * (x @ W_up)) @ W_down"

EXERCISE = Exercise(
    id="swiglu",
    title="SwiGLU",
    function="swiglu",
    signature="swiglu(x, W_gate, W_up, W_down)",
    prompt="Write `(SiLU(x W_gate) * (x W_up)) W_down` for rows of words. The last axis of `x` is d_model; any number "
    "of axes may stand before it.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`x @ W_gate` and `x @ W_up` have the same shape: multiply them number by number with `*`.",
        "SiLU goes on the gate alone.",
        "`@ W_down` brings every row back to d_model numbers.",
    ),
    cases=(
        Case(
            "three words",
            (
                array([1, 0], [0, 1], [1, -1]),
                array([1, 0, -1], [0, 2, 1]),
                array([2, 1, 1], [1, -1, 3]),
                array([1, 0], [0, 1], [1, 1]),
            ),
        ),
        Case("one word, one unit", (array([1]), array([-1]), array([2]), array([1]))),
        Case("as many words as hidden units", (numbers(1, 3, 2), numbers(2, 2, 3), numbers(3, 2, 3), numbers(4, 3, 2))),
        Case(
            "two sentences of three words", (numbers(5, 2, 3, 2), numbers(6, 2, 5), numbers(7, 2, 5), numbers(8, 5, 2))
        ),
    ),
    mistakes=(
        Mistake(
            "SiLU on the value",
            swap(SOLUTION, ("gate = x @ W_gate", "gate = x @ W_up"), ("(x @ W_up)", "(x @ W_gate)")),
            "SiLU sits on the value. It belongs on the gate, x W_gate.",
        ),
        Mistake(
            "matrix product",
            swap(SOLUTION, (PRODUCT, "(gate @ (x @ W_up)) @ W_down")),
            "Gate and value are multiplied number by number: *, not @.",
        ),
        Mistake(
            "sigmoid for SiLU",
            swap(SOLUTION, (SILU, "1 / (1 + np.exp(-gate))")),
            "That is the sigmoid. SiLU multiplies it by z once more: z * sigmoid(z).",
        ),
        Mistake(
            "ReLU for SiLU",
            swap(SOLUTION, (SILU, "np.maximum(0, gate)")),
            "That is ReLU. SiLU(z) = z / (1 + exp(-z)) lets a little of a negative gate through.",
        ),
        Mistake(
            "two axes only",
            swap(SOLUTION, ("    gate = x @ W_gate\n", "    L, d = x.shape\n    gate = x @ W_gate\n")),
            "It works for rows of words, but not for x with three axes, (sentences, words, d_model). @ takes it too.",
        ),
        Mistake(
            "no gate",
            swap(SOLUTION, (PRODUCT, "(x @ W_up) @ W_down")),
            "The gate is computed and never used: multiply the value by it.",
        ),
        Mistake(
            "SiLU on both",
            swap(SOLUTION, ("(x @ W_up)", "(x @ W_up / (1 + np.exp(-(x @ W_up))))")),
            "SiLU is on gate and value. Only the gate goes through it.",
        ),
    ),
)
