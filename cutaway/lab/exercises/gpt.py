"""A small GPT, from ids to logits."""

from __future__ import annotations

from typing import Any

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


# Given: leave this part as it is.
def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def attention(x, b):
    # Causal attention of one block, two heads.
    length, width = x.shape
    q, k, v = (np.swapaxes((x @ b[n]).reshape(length, 2, width // 2), 0, 1) for n in ("q", "k", "v"))
    scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(width // 2)
    scores = np.where(np.tril(np.ones((length, length))) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = weights / weights.sum(axis=-1, keepdims=True) @ v
    return np.swapaxes(heads, 0, 1).reshape(length, width) @ b["o"]


def ffn(x, b):
    return np.maximum(0, x @ b["up"]) @ b["down"]


# Yours.
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
    # ids: a list of L token ids. w["tokens"] (V, D) and w["positions"] (C, D) are tables, w["blocks"] a list of blocks.
    # Pre-norm blocks, a final norm, then the head: the token table once more, transposed. Return logits (L, V).
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
    title="A small GPT",
    function="gpt",
    signature="gpt(ids, w)",
    prompt="From token ids to logits. Look up each token's vector and add the learned vector of its position; run the "
    "pre-norm blocks; take the final RMSNorm; score every token of the vocabulary with the token table itself, "
    "transposed (the head is tied). The result has the shape (L, V).",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        '`w["tokens"][ids]` looks all ids up at once: (L, D).',
        'The first L rows of `w["positions"]` are those of positions 0 to L - 1.',
        'A head that is tied is `@ w["tokens"].T`.',
    ),
    cases=(
        Case("three ids and one block", ([2, 0, 3], model(1, 5, 8, 4, 1))),
        Case("two blocks", ([1, 1, 4, 2], model(101, 6, 6, 4, 2))),
        Case("a single id", ([3], model(201, 5, 4, 6, 1))),
        Case("no block at all", ([0, 2], model(301, 4, 4, 4, 0))),
    ),
    mistakes=(
        Mistake(
            "no positions",
            swap(SOLUTION, (START, 'w["tokens"][ids]')),
            "The positions are missing: add the first L rows of the position table.",
        ),
        Mistake(
            "positions by id",
            swap(SOLUTION, ('w["positions"][: len(ids)]', 'np.take(w["positions"], ids, axis=0, mode="wrap")')),
            "You look positions up by token id. A position's row is its place: 0, 1, 2, ...",
        ),
        Mistake(
            "no final norm",
            swap(SOLUTION, ("return rms_norm(x) @", "return x @")),
            "The final norm is missing: nothing has normalised x yet when the head reads it.",
        ),
        Mistake(
            "no residual",
            swap(SOLUTION, ("x = x + attention", "x = attention"), ("x = x + ffn", "x = ffn")),
            "x is replaced by each sublayer. Add the result to x.",
        ),
        Mistake(
            "probabilities",
            swap(
                SOLUTION,
                ("    return rms_norm(x)", "    z = np.exp(rms_norm(x)"),
                ('["tokens"].T', '["tokens"].T)\n    return z / z.sum(axis=-1, keepdims=True)'),
            ),
            "You return probabilities. Return the logits, before softmax.",
        ),
        Mistake(
            "last token only",
            swap(SOLUTION, ("return rms_norm(x) @", "return rms_norm(x)[-1] @")),
            "You return the last token's logits alone. Every position predicts its next token: (L, V).",
        ),
        Mistake(
            "one block",
            swap(SOLUTION, ('in w["blocks"]:', 'in w["blocks"][:1]:')),
            'Only the first block runs. Run each block of w["blocks"] on the x of the one before.',
        ),
        Mistake(
            "norm on the stream",
            swap(
                SOLUTION,
                (
                    "        x = x + attention(rms_norm(x), b)",
                    "        x = rms_norm(x)\n        x = x + attention(x, b)",
                ),
            ),
            "x itself is normalised. Only what a sublayer reads is: x + f(norm(x)).",
        ),
    ),
)
