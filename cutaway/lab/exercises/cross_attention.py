"""Cross-attention: queries from one sequence, keys and values from another."""

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
def cross_attention(x, memory, W_q, W_k, W_v):
    q, k, v = x @ W_q, memory @ W_k, memory @ W_v
    return softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v
"""
)
STARTER = (
    GIVEN
    + """\
def cross_attention(x, memory, W_q, W_k, W_v):
    # x (T, D): what the decoder has written so far. memory (S, D): what the encoder has read.
    return x
"""
)


def _args(seed: int, target: int, source: int, width: int) -> tuple:
    weights = (numbers(seed + i, width, width) for i in range(2, 5))
    return (numbers(seed, target, width), numbers(seed + 1, source, width), *weights)


MASKED = "np.where(np.tril(np.ones((len(q), len(k)))) > 0, q @ k.T / np.sqrt(q.shape[-1]), -np.inf)"

EXERCISE = Exercise(
    id="cross-attention",
    title="Cross-attention",
    function="cross_attention",
    signature="cross_attention(x, memory, W_q, W_k, W_v)",
    prompt="Let each row of `x` (T, D), the target, gather from `memory` (S, D), the encoder's output. One head, "
    "scores divided by the root of their width. The whole source may be seen. The result has the shape (T, D).",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "Who asks? The target: Q comes from x.",
        "Who answers? The source: K and V both come from memory.",
        "No causal mask: the source is known as a whole.",
    ),
    cases=(
        Case("two target and four source tokens", _args(1, 2, 4, 3)),
        Case("as many target as source tokens", _args(11, 3, 3, 4)),
        Case("more target than source tokens", _args(21, 5, 2, 4)),
    ),
    mistakes=(
        Mistake(
            "the wrong side asks",
            swap(SOLUTION, ("x @ W_q, memory @ W_k, memory @ W_v", "memory @ W_q, x @ W_k, x @ W_v")),
            "The source asks the target. It is the other way round: Q from x, K and V from memory.",
        ),
        Mistake(
            "values from the target",
            swap(SOLUTION, ("memory @ W_v", "x @ W_v")),
            "V comes from x. Keys and values belong together: both come from memory.",
        ),
        Mistake(
            "keys from the target",
            swap(SOLUTION, ("memory @ W_k", "x @ W_k")),
            "K comes from x. Keys and values belong together: both come from memory.",
        ),
        Mistake(
            "self-attention",
            swap(SOLUTION, ("memory @", "x @")),
            "That is self-attention: memory is never read. K and V come from memory.",
        ),
        Mistake(
            "causal mask",
            swap(SOLUTION, ("q @ k.T / np.sqrt(q.shape[-1])", MASKED)),
            "You hide a part of the source. Cross-attention has no causal mask: all of it was read before.",
        ),
        Mistake(
            "not scaled",
            swap(SOLUTION, (" / np.sqrt(q.shape[-1])", "")),
            "The scores are not divided by the root of their width.",
        ),
    ),
)
