"""The small GPT with its learned positions replaced by RoPE."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, swap
from cutaway.lab.exercises.gpt import model

GIVEN = """\
import numpy as np


«given»
def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def ffn(x, b):
    return np.maximum(0, x @ b["up"]) @ b["down"]


def heads(y):
    «heads»
    return np.swapaxes(y.reshape(len(y), 2, -1), 0, 1)


def attend(q, k, v):
    «attend»
    length = q.shape[1]
    scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones((length, length))) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.swapaxes(weights / weights.sum(axis=-1, keepdims=True) @ v, 0, 1).reshape(length, -1)


«yours»
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
    «rope»
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
    function="gpt",
    signature="gpt(ids, w), rope(x)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(
        Case(([2, 0, 3], model(1, 5, 8, 8, 1))),
        Case(([1, 1, 4, 2], model(101, 6, 6, 8, 2))),
        Case(([3], model(201, 5, 4, 4, 1))),
        Case(([0, 1, 2, 3, 3, 2, 1], model(301, 4, 3, 8, 1))),
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
        ),
        Mistake(
            "learned table too short",
            swap(SOLUTION, ('w["tokens"][ids]\n', 'w["tokens"][ids] + w["positions"][: len(ids)]\n')),
        ),
        Mistake("nothing turned", swap(SOLUTION, (TURNED, "attend(q, k, v)"))),
        Mistake("values turned", swap(SOLUTION, (TURNED, "attend(rope(q), rope(k), rope(v))"))),
        Mistake("only the query turned", swap(SOLUTION, (TURNED, "attend(rope(q), k, v)"))),
        Mistake(
            "turned before the heads",
            swap(
                SOLUTION,
                (TURNED, "attend(q, k, v)"),
                ('heads(h @ b["q"]), heads(h @ b["k"])', 'heads(rope(h @ b["q"])), heads(rope(h @ b["k"]))'),
            ),
        ),
        Mistake(
            "halves",
            swap(
                SOLUTION,
                ("x[..., 0::2], x[..., 1::2]", "x[..., : d // 2], x[..., d // 2 :]"),
                ("turned[..., 0::2]", "turned[..., : d // 2]"),
                ("turned[..., 1::2]", "turned[..., d // 2 :]"),
            ),
        ),
    ),
)
