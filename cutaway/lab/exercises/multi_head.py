"""Multi-head attention."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


# Given: leave this part as it is.
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


# Yours.
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
    # x (L, D). Each head works on its own D / n_heads columns of x W_q, x W_k, x W_v; no mask.
    # Side by side again, the heads go through W_o.
    return x
"""
)


def _args(seed: int, length: int, width: int, heads: int) -> tuple:
    return (numbers(seed, length, width), *(numbers(seed + i, width, width) for i in range(1, 5)), heads)


EXERCISE = Exercise(
    id="multi-head",
    title="Many heads",
    function="multi_head",
    signature="multi_head(x, W_q, W_k, W_v, W_o, n_heads)",
    prompt="Split `x W_q`, `x W_k` and `x W_v` into `n_heads` heads of D / n_heads neighbouring columns, let each head "
    "attend by itself (no mask, scores divided by the root of a head's width), put the heads side by side again and "
    "multiply by `W_o`. `x` has the shape (L, D), and so has the result.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`y.reshape(L, n_heads, d_k)` cuts the columns; `.swapaxes(0, 1)` brings the heads to the front.",
        "With heads in front, `q @ k.swapaxes(1, 2)` does all heads at once: (n_heads, L, L).",
        "Back again: swap the axes first, then reshape to (L, D).",
    ),
    cases=(
        Case("three tokens and two heads", _args(1, 3, 4, 2)),
        Case("as many tokens as heads", _args(11, 2, 6, 2)),
        Case("a single head", _args(21, 3, 4, 1)),
        Case("four heads", _args(31, 5, 8, 4)),
    ),
    mistakes=(
        Mistake(
            "heads cut from the rows",
            swap(SOLUTION, ("y.reshape(length, n_heads, d_k).swapaxes(0, 1)", "y.reshape(n_heads, length, d_k)")),
            "reshape to (n_heads, L, d_k) mixes tokens. Reshape to (L, n_heads, d_k), then swap the first two axes.",
        ),
        Mistake(
            "scaled by the whole width",
            swap(SOLUTION, ("np.sqrt(d_k)", "np.sqrt(width)")),
            "You divide by the root of d_model. A head's scores are divided by the root of its own width, d_k.",
        ),
        Mistake(
            "joined without swapping",
            swap(SOLUTION, ("heads.swapaxes(0, 1).reshape", "heads.reshape")),
            "The heads are stacked below one another and then cut. Swap the axes back before you reshape.",
        ),
        Mistake("no W_o", swap(SOLUTION, (" @ W_o", "")), "W_o is missing: it mixes what the heads have found."),
        Mistake(
            "one head",
            swap(SOLUTION, ("    d_k =", "    n_heads = 1\n    d_k =")),
            "All columns attend together, as one head. Each head has its own scores and its own softmax.",
        ),
        Mistake(
            "queries and keys swapped",
            swap(SOLUTION, ("softmax(q @ k.swapaxes(1, 2)", "softmax(k @ q.swapaxes(1, 2)")),
            "Rows are keys and columns queries. A row must be a query: q @ k transposed.",
        ),
        Mistake(
            "not scaled", swap(SOLUTION, (" / np.sqrt(d_k)", "")), "The scores are not divided by the root of d_k."
        ),
    ),
)
