"""The block of most of today's models."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


«given»
def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def rope(x):
    «rope»
    length, d = x.shape
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    a, b = x[:, 0::2], x[:, 1::2]
    turned = np.empty_like(x)
    turned[:, 0::2] = a * np.cos(angle) - b * np.sin(angle)
    turned[:, 1::2] = a * np.sin(angle) + b * np.cos(angle)
    return turned


def attend(q, k, v):
    «attend»
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def silu(z):
    return z / (1 + np.exp(-z))


«yours»
"""
SOLUTION = (
    GIVEN
    + """\
def modern_block(x, w):
    h = rms_norm(x)
    q, k, v = rope(h @ w["q"]), rope(h @ w["k"]), h @ w["v"]
    x = x + attend(q, k, v) @ w["o"]
    h = rms_norm(x)
    return x + (silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
"""
)
STARTER = (
    GIVEN
    + """\
def modern_block(x, w):
    «modern_block»
    return x
"""
)
HEADS = 'rope(h @ w["q"]), rope(h @ w["k"]), h @ w["v"]'


def _case(seed: int, length: int, width: int, hidden: int) -> Case:
    shapes = {key: (width, width) for key in ("q", "k", "v", "o")}
    shapes |= {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    weights = {key: numbers(seed + i, *shape) for i, (key, shape) in enumerate(shapes.items(), 1)}
    return Case((numbers(seed, length, width), weights))


EXERCISE = Exercise(
    id="modern-block",
    function="modern_block",
    signature="modern_block(x, w)",
    starter=STARTER,
    solution=SOLUTION,
    cases=(_case(1, 3, 4, 6), _case(11, 1, 4, 5), _case(21, 5, 6, 6)),
    mistakes=(
        Mistake("values turned", swap(SOLUTION, (HEADS, 'rope(h @ w["q"]), rope(h @ w["k"]), rope(h @ w["v"])'))),
        Mistake("nothing turned", swap(SOLUTION, (HEADS, 'h @ w["q"], h @ w["k"], h @ w["v"]'))),
        Mistake(
            "turned before the matrices", swap(SOLUTION, (HEADS, 'rope(h) @ w["q"], rope(h) @ w["k"], h @ w["v"]'))
        ),
        Mistake("only the query turned", swap(SOLUTION, ('rope(h @ w["k"])', 'h @ w["k"]'))),
        Mistake("no residual", swap(SOLUTION, ("x = x + attend", "x = attend"), ("return x + (", "return ("))),
        Mistake("one norm for both", swap(SOLUTION, ('w["o"]\n    h = rms_norm(x)\n', 'w["o"]\n'))),
        Mistake(
            "gate and value swapped",
            swap(SOLUTION, ('(silu(h @ w["gate"]) * (h @ w["up"]))', '(h @ w["gate"] * silu(h @ w["up"]))')),
        ),
        Mistake("no W_o", swap(SOLUTION, (' @ w["o"]', ""))),
        Mistake(
            "norm on the sum",
            swap(SOLUTION, ("    h = rms_norm(x)\n    return x", "    x = h = rms_norm(x)\n    return x")),
        ),
    ),
)
