"""The small GPT with its learned positions replaced by RoPE."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, swap
from cutaway.lab.exercises.gpt import model

GIVEN = """\
import numpy as np


# Given: leave this part as it is.
def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def ffn(x, b):
    return np.maximum(0, x @ b["up"]) @ b["down"]


def heads(y):
    # (L, D) -> (2, L, D / 2): two heads.
    return np.swapaxes(y.reshape(len(y), 2, -1), 0, 1)


def attend(q, k, v):
    # Causal attention of every head, and the heads side by side again: (2, L, H) -> (L, 2 H).
    length = q.shape[1]
    scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones((length, length))) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.swapaxes(weights / weights.sum(axis=-1, keepdims=True) @ v, 0, 1).reshape(length, -1)


# Yours: rope, and what changes in the model.
"""
SOLUTION = (
    GIVEN
    + """\
def rope(x):
    length, d = x.shape[-2:]
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    a, b = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = a * np.cos(angle) - b * np.sin(angle)
    turned[..., 1::2] = a * np.sin(angle) + b * np.cos(angle)
    return turned


def gpt(ids, w):
    x = w["tokens"][ids]
    for b in w["blocks"]:
        h = rms_norm(x)
        q, k, v = heads(h @ b["q"]), heads(h @ b["k"]), heads(h @ b["v"])
        x = x + attend(rope(q), rope(k), v) @ b["o"]
        x = x + ffn(rms_norm(x), b)
    return rms_norm(x) @ w["tokens"].T
"""
)
STARTER = (
    GIVEN
    + """\
def rope(x):
    # x (heads, L, H): turn each pair of neighbouring numbers (2i, 2i + 1) of row pos by pos / 10000 ** (2i / H).
    return x


def gpt(ids, w):
    x = w["tokens"][ids] + w["positions"][: len(ids)]
    for b in w["blocks"]:
        h = rms_norm(x)
        q, k, v = heads(h @ b["q"]), heads(h @ b["k"]), heads(h @ b["v"])
        x = x + attend(q, k, v) @ b["o"]
        x = x + ffn(rms_norm(x), b)
    return rms_norm(x) @ w["tokens"].T
"""
)
TURNED = "attend(rope(q), rope(k), v)"

EXERCISE = Exercise(
    id="gpt-rope",
    title="The same GPT with RoPE",
    function="gpt",
    signature="gpt(ids, w), rope(x)",
    prompt="Take the learned positions out of the model and turn q and k by their place instead. Write `rope` for "
    "heads of shape (heads, L, H) and use it in `gpt`. The text may then be longer than the position table was.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "Nothing is added to the token vectors any more.",
        "Turn after the heads are split: each head has its own pairs and speeds, H numbers wide.",
        "q and k are turned, v is not.",
    ),
    cases=(
        Case("three ids and one block", ([2, 0, 3], model(1, 5, 8, 8, 1))),
        Case("two blocks", ([1, 1, 4, 2], model(101, 6, 6, 8, 2))),
        Case("a single id", ([3], model(201, 5, 4, 4, 1))),
        Case("more ids than the position table has rows", ([0, 1, 2, 3, 3, 2, 1], model(301, 4, 3, 8, 1))),
    ),
    mistakes=(
        Mistake(
            "positions still added",
            swap(
                SOLUTION,
                (
                    'w["tokens"][ids]\n',
                    'w["tokens"][ids] + np.resize(w["positions"], (len(ids), w["positions"].shape[1]))\n',
                ),
            ),
            "The learned positions are still added. RoPE takes their place: start from the token vectors alone.",
        ),
        Mistake(
            "learned table too short",
            swap(SOLUTION, ('w["tokens"][ids]\n', 'w["tokens"][ids] + w["positions"][: len(ids)]\n')),
            "The learned positions are still added, and their table is too short here. RoPE takes their place.",
        ),
        Mistake(
            "nothing turned",
            swap(SOLUTION, (TURNED, "attend(q, k, v)")),
            "q and k are not turned: now nothing tells the model about order. Call rope on both.",
        ),
        Mistake(
            "values turned",
            swap(SOLUTION, (TURNED, "attend(rope(q), rope(k), rope(v))")),
            "You turn v as well. Only q and k are turned.",
        ),
        Mistake(
            "only the query turned",
            swap(SOLUTION, (TURNED, "attend(rope(q), k, v)")),
            "k is not turned. A score depends on the distance only if both are.",
        ),
        Mistake(
            "turned before the heads",
            swap(
                SOLUTION,
                (TURNED, "attend(q, k, v)"),
                ('heads(h @ b["q"]), heads(h @ b["k"])', 'heads(rope(h @ b["q"])), heads(rope(h @ b["k"]))'),
            ),
            "You turn before the heads are split, so the second head gets the slow pairs alone. Split first.",
        ),
        Mistake(
            "halves",
            swap(
                SOLUTION,
                ("x[..., 0::2], x[..., 1::2]", "x[..., : d // 2], x[..., d // 2 :]"),
                ("turned[..., 0::2]", "turned[..., : d // 2]"),
                ("turned[..., 1::2]", "turned[..., d // 2 :]"),
            ),
            "Your pairs are (i, i + H/2). Here neighbours form a pair: (0, 1), (2, 3), ...",
        ),
    ),
)
