"""The block of most of today's models."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


# Given: leave this part as it is.
def rms_norm(x, eps=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def rope(x):
    # Row pos of x (L, d): each pair of numbers turned by pos times the pair's own speed.
    length, d = x.shape
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    a, b = x[:, 0::2], x[:, 1::2]
    turned = np.empty_like(x)
    turned[:, 0::2] = a * np.cos(angle) - b * np.sin(angle)
    turned[:, 1::2] = a * np.sin(angle) + b * np.cos(angle)
    return turned


def attend(q, k, v):
    # Causal attention, scaled.
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def silu(z):
    return z / (1 + np.exp(-z))


# Yours.
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
    # x (L, D). w holds the matrices w["q"], w["k"], w["v"], w["o"], w["gate"], w["up"], w["down"]; one head.
    # Attention reads the RMSNorm of x, with q and k turned by RoPE; then SwiGLU reads the RMSNorm of the new x.
    return x
"""
)
HEADS = 'rope(h @ w["q"]), rope(h @ w["k"]), h @ w["v"]'


def _case(name: str, seed: int, length: int, width: int, hidden: int) -> Case:
    shapes = {key: (width, width) for key in ("q", "k", "v", "o")}
    shapes |= {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    weights = {key: numbers(seed + i, *shape) for i, (key, shape) in enumerate(shapes.items(), 1)}
    return Case(name, (numbers(seed, length, width), weights))


EXERCISE = Exercise(
    id="modern-block",
    title="A modern block",
    function="modern_block",
    signature="modern_block(x, w)",
    prompt="Put the parts together: pre-norm with RMSNorm, causal attention with RoPE on q and k, `W_o` behind it, "
    "then SwiGLU. Each result is added to `x`. `w` is a dictionary of matrices; there is one head.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        '`h = rms_norm(x)`, then `rope(h @ w["q"])`: first the matrix, then the turn.',
        'v is not turned. `attend(q, k, v) @ w["o"]` is added to x.',
        "Take the RMSNorm again, of the new x, before SwiGLU.",
    ),
    cases=(
        _case("three tokens", 1, 3, 4, 6),
        _case("one token", 11, 1, 4, 5),
        _case("five tokens of six numbers", 21, 5, 6, 6),
    ),
    mistakes=(
        Mistake(
            "values turned",
            swap(SOLUTION, (HEADS, 'rope(h @ w["q"]), rope(h @ w["k"]), rope(h @ w["v"])')),
            "You turn v as well. RoPE changes the scores alone: only q and k are turned.",
        ),
        Mistake(
            "nothing turned",
            swap(SOLUTION, (HEADS, 'h @ w["q"], h @ w["k"], h @ w["v"]')),
            "q and k are not turned, so the scores know nothing of the distance. Use rope.",
        ),
        Mistake(
            "turned before the matrices",
            swap(SOLUTION, (HEADS, 'rope(h) @ w["q"], rope(h) @ w["k"], h @ w["v"]')),
            "You turn x and multiply then. Multiply first: q and k themselves are turned.",
        ),
        Mistake(
            "only the query turned",
            swap(SOLUTION, ('rope(h @ w["k"])', 'h @ w["k"]')),
            "k is not turned. A score depends on the distance only if both are.",
        ),
        Mistake(
            "no residual",
            swap(SOLUTION, ("x = x + attend", "x = attend"), ("return x + (", "return (")),
            "x is replaced by each sublayer. Add the result to x.",
        ),
        Mistake(
            "one norm for both",
            swap(SOLUTION, ('w["o"]\n    h = rms_norm(x)\n', 'w["o"]\n')),
            "SwiGLU reads the norm of the old x. Take the RMSNorm of the x that attention has changed.",
        ),
        Mistake(
            "gate and value swapped",
            swap(SOLUTION, ('(silu(h @ w["gate"]) * (h @ w["up"]))', '(h @ w["gate"] * silu(h @ w["up"]))')),
            "SiLU sits on the value. It belongs on the gate.",
        ),
        Mistake(
            "no W_o",
            swap(SOLUTION, (' @ w["o"]', "")),
            'w["o"] is missing behind attention.',
        ),
        Mistake(
            "norm on the sum",
            swap(SOLUTION, ('    h = rms_norm(x)\n    return x', '    x = h = rms_norm(x)\n    return x')),
            "x itself is normalised in the middle. Only what a sublayer reads is.",
        ),
    ),
)  # fmt: skip
