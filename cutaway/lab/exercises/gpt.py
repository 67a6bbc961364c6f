"""A small GPT, from ids to logits."""

from __future__ import annotations

from typing import Any

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


«given»
def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def attention(x, b):
    «attention»
    length, width = x.shape
    q, k, v = (
        np.swapaxes((x @ b[name]).reshape(length, 2, width // 2), 0, 1)
        for name in ("q", "k", "v")
    )
    scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(width // 2)
    scores = np.where(np.tril(np.ones((length, length))) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = weights / weights.sum(axis=-1, keepdims=True) @ v
    return np.swapaxes(heads, 0, 1).reshape(length, width) @ b["o"]


def ffn(x, b):
    return np.maximum(0, x @ b["up"]) @ b["down"]


«yours»
"""
SOLUTION = (
    GIVEN
    + """\
def gpt(ids, w):
    x = w["tokens"][ids] + w["positions"][: len(ids)]
    for b in w["blocks"]:
        x = x + attention(rms_norm(x), b)
        x = x + ffn(rms_norm(x), b)
    return rms_norm(x) @ w["tokens"].T
"""
)
STARTER = (
    GIVEN
    + """\
def gpt(ids, w):
    «gpt»
    return np.zeros((len(ids), len(w["tokens"])))
"""
)
START = 'w["tokens"][ids] + w["positions"][: len(ids)]'


def model(seed: int, vocabulary: int, context: int, width: int, blocks: int) -> dict[str, Any]:
    """Weights for both GPT exercises."""
    shapes = {**{n: (width, width) for n in "qkvo"}, "up": (width, 2 * width), "down": (2 * width, width)}
    return {
        "tokens": numbers(seed, vocabulary, width),
        "positions": numbers(seed + 1, context, width),
        "blocks": [
            {name: numbers(seed + 10 * b + i, *shape) for i, (name, shape) in enumerate(shapes.items(), 2)}
            for b in range(blocks)
        ],
    }


EXERCISE = Exercise(
    id="gpt",
    function="gpt",
    signature="gpt(ids, w)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case(([2, 0, 3], model(1, 5, 8, 4, 1))),
        Case(([1, 1, 4, 2], model(101, 6, 6, 4, 2))),
        Case(([3], model(201, 5, 4, 6, 1))),
        Case(([0, 2], model(301, 4, 4, 4, 0))),
    ),
    mistakes=(
        Mistake("no positions", swap(SOLUTION, (START, 'w["tokens"][ids]'))),
        Mistake(
            "positions by id",
            swap(SOLUTION, ('w["positions"][: len(ids)]', 'np.take(w["positions"], ids, axis=0, mode="wrap")')),
        ),
        Mistake("no final norm", swap(SOLUTION, ("return rms_norm(x) @", "return x @"))),
        Mistake("no residual", swap(SOLUTION, ("x = x + attention", "x = attention"), ("x = x + ffn", "x = ffn"))),
        Mistake(
            "probabilities",
            swap(
                SOLUTION,
                ("    return rms_norm(x)", "    z = np.exp(rms_norm(x)"),
                ('["tokens"].T', '["tokens"].T)\n    return z / z.sum(axis=-1, keepdims=True)'),
            ),
        ),
        Mistake("last token only", swap(SOLUTION, ("return rms_norm(x) @", "return rms_norm(x)[-1] @"))),
        Mistake("one block", swap(SOLUTION, ('in w["blocks"]:', 'in w["blocks"][:1]:'))),
        Mistake(
            "norm on the stream",
            swap(
                SOLUTION,
                (
                    "        x = x + attention(rms_norm(x), b)",
                    "        x = rms_norm(x)\n        x = x + attention(x, b)",
                ),
            ),
        ),
    ),
)
