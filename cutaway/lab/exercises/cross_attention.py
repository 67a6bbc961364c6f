"""Cross-attention: queries from one sequence, keys and values from another."""

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
def cross_attention(x, memory, W_q, W_k, W_v):
    q, k, v = x @ W_q, memory @ W_k, memory @ W_v
    return softmax(q @ k.T / np.sqrt(q.shape[-1])) @ v
"""
)
STARTER = (
    GIVEN
    + """\
def cross_attention(x, memory, W_q, W_k, W_v):
    «cross_attention»
    return x
"""
)


def _args(seed: int, target: int, source: int, width: int) -> tuple:
    weights = (numbers(seed + i, width, width) for i in range(2, 5))
    return (numbers(seed, target, width), numbers(seed + 1, source, width), *weights)


MASKED = "np.where(np.tril(np.ones((len(q), len(k)))) > 0, q @ k.T / np.sqrt(q.shape[-1]), -np.inf)"

EXERCISE = Exercise(
    id="cross-attention",
    function="cross_attention",
    signature="cross_attention(x, memory, W_q, W_k, W_v)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(Case(_args(1, 2, 4, 3)), Case(_args(11, 3, 3, 4)), Case(_args(21, 5, 2, 4))),
    mistakes=(
        Mistake(
            "the wrong side asks",
            swap(SOLUTION, ("x @ W_q, memory @ W_k, memory @ W_v", "memory @ W_q, x @ W_k, x @ W_v")),
        ),
        Mistake("values from the target", swap(SOLUTION, ("memory @ W_v", "x @ W_v"))),
        Mistake("keys from the target", swap(SOLUTION, ("memory @ W_k", "x @ W_k"))),
        Mistake("self-attention", swap(SOLUTION, ("memory @", "x @"))),
        Mistake("causal mask", swap(SOLUTION, ("q @ k.T / np.sqrt(q.shape[-1])", MASKED))),
        Mistake("not scaled", swap(SOLUTION, (" / np.sqrt(q.shape[-1])", ""))),
    ),
)
