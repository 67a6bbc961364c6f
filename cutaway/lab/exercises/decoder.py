"""A stack of pre-norm decoder blocks with its final norm."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, swap

GIVEN = """\
import numpy as np

«given»
W1 = np.array([[1.0, -1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 1.0]])
b1 = np.array([0.0, 0.0, 1.0, -2.0])
W2 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])
b2 = np.array([0.0, 0.0])


def layer_norm(x, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)


def causal_mask(length):
    «causal_mask»
    return np.tril(np.ones((length, length), dtype=bool))


def attention(x, mask=None):
    scores = x @ x.T / np.sqrt(x.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ x


def ffn(x):
    return np.maximum(0, x @ W1 + b1) @ W2 + b2


«yours»
"""
SOLUTION = (
    GIVEN
    + """\
def decoder(x, n_blocks):
    mask = causal_mask(len(x))
    for _ in range(n_blocks):
        x = x + attention(layer_norm(x), mask)
        x = x + ffn(layer_norm(x))
    return layer_norm(x)
"""
)
STARTER = (
    GIVEN
    + """\
def decoder(x, n_blocks):
    «decoder»
    return x
"""
)
ATTENTION, FFN, END = (
    "x = x + attention(layer_norm(x), mask)",
    "x = x + ffn(layer_norm(x))",
    "    return layer_norm(x)\n",
)
WIDE = {
    "W1": array([0, 0, 2, 0, 1, -2, 0, -1], [-2, 1, 0, -2, -1, 2, -2, 2], [2, -2, -2, 2, -2, -2, 2, 1],
                [0, -2, -1, 1, -1, 2, 0, 2]),
    "b1": array(-1, 0, -1, -1, 1, 0, 1, -1),
    "W2": array([-2, 2, 2, -1], [2, 0, 0, 0], [1, -2, 2, -1], [-1, 1, 2, 0], [2, 1, 1, 0], [1, -2, -2, 1],
                [0, 1, -1, 2], [0, -2, -1, 2]),
    "b2": array(0.5, 0, -0.5, 0),
}  # fmt: skip
WIDE_X = array([-2, 3, -3, 3], [-2, 3, 2, 1], [1, -1, 0, -3])

EXERCISE = Exercise(
    id="decoder",
    function="decoder",
    signature="decoder(x, n_blocks)",
    starter=STARTER,
    solution=SOLUTION,
    spies=("layer_norm",),
    cases=(
        Case((array([0, 4]), 1)),
        Case((array([0, 4]), 2)),
        Case((array([0, 4]), 3)),
        Case((array([0, 4], [5, 1]), 0)),
        Case((array([2, 0], [0, 2]), 1)),
        Case((array([2, 0], [0, 4], [3, 1]), 2)),
        Case((array([2, 0], [1, 1], [0, 2]), 1)),
        Case((WIDE_X, 2), WIDE),
    ),
    mistakes=(
        Mistake(
            "post-norm",
            swap(SOLUTION, (ATTENTION, "x = layer_norm(x + attention(x, mask))"), (FFN, "x = layer_norm(x + ffn(x))")),
        ),
        Mistake(
            "norm on the sum",
            swap(
                SOLUTION,
                (ATTENTION, "x = layer_norm(x + attention(layer_norm(x), mask))"),
                (FFN, "x = layer_norm(x + ffn(layer_norm(x)))"),
            ),
        ),
        Mistake("no mask", swap(SOLUTION, ("attention(layer_norm(x), mask)", "attention(layer_norm(x))"))),
        Mistake(
            "same input for both",
            swap(SOLUTION, (ATTENTION, "h = layer_norm(x)"), (FFN, "x = x + attention(h, mask) + ffn(h)")),
        ),
        Mistake(
            "final norm in every block",
            swap(SOLUTION, (FFN, FFN + "\n        x = layer_norm(x)"), (END, "    return x\n")),
        ),
        Mistake("no final norm", swap(SOLUTION, (END, "    return x\n"))),
        Mistake("no residual", swap(SOLUTION, ("x = x + attention", "x = attention"), ("x = x + ffn", "x = ffn"))),
        Mistake("FFN without its norm", swap(SOLUTION, (FFN, "x = x + ffn(x)"))),
        Mistake("one block", swap(SOLUTION, ("range(n_blocks)", "range(min(n_blocks, 1))"))),
    ),
)
