"""Multi-head attention."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


«given»
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


«yours»
"""
SOLUTION = (
    GIVEN
    + """\
def multi_head(x, W_q, W_k, W_v, W_o, n_heads):
    length, width = x.shape
    d_k = width // n_heads

    def split(y):
        return y.reshape(length, n_heads, d_k).swapaxes(0, 1)

    q, k, v = split(x @ W_q), split(x @ W_k), split(x @ W_v)
    weights = softmax(q @ k.swapaxes(1, 2) / np.sqrt(d_k))
    heads = weights @ v
    return heads.swapaxes(0, 1).reshape(length, width) @ W_o
"""
)
STARTER = (
    GIVEN
    + """\
def multi_head(x, W_q, W_k, W_v, W_o, n_heads):
    «multi_head»
    return x
"""
)


def _args(seed: int, length: int, width: int, heads: int) -> tuple:
    return (numbers(seed, length, width), *(numbers(seed + i, width, width) for i in range(1, 5)), heads)


EXERCISE = Exercise(
    id="multi-head",
    function="multi_head",
    signature="multi_head(x, W_q, W_k, W_v, W_o, n_heads)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(Case(_args(1, 3, 4, 2)), Case(_args(11, 2, 6, 2)), Case(_args(21, 3, 4, 1)), Case(_args(31, 5, 8, 4))),
    mistakes=(
        Mistake(
            "heads cut from the rows",
            swap(SOLUTION, ("y.reshape(length, n_heads, d_k).swapaxes(0, 1)", "y.reshape(n_heads, length, d_k)")),
        ),
        Mistake("scaled by the whole width", swap(SOLUTION, ("np.sqrt(d_k)", "np.sqrt(width)"))),
        Mistake("joined without swapping", swap(SOLUTION, ("heads.swapaxes(0, 1).reshape", "heads.reshape"))),
        Mistake("no W_o", swap(SOLUTION, (" @ W_o", ""))),
        Mistake("one head", swap(SOLUTION, ("    d_k =", "    n_heads = 1\n    d_k ="))),
        Mistake(
            "queries and keys swapped", swap(SOLUTION, ("softmax(q @ k.swapaxes(1, 2)", "softmax(k @ q.swapaxes(1, 2)"))
        ),
        Mistake("not scaled", swap(SOLUTION, (" / np.sqrt(d_k)", ""))),
    ),
)
