"""Skip test of `modern`: norms on the path, RMSNorm, a RoPE score, a gated unit, and the width of a gated network."""

from __future__ import annotations

import math

import numpy as np

from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, pick, row, whole
from cutaway.reference.functions import Array, relu, sigmoid, silu
from cutaway.reference.norms import layer_norm, rms_norm
from cutaway.reference.positions import rotate
from cutaway.reference.residual import norms_on_path


def path(rng: np.random.Generator) -> Fresh:
    """Norms on the residual path of a post-norm model of n blocks."""
    blocks = whole(rng, 4, 40)
    answer = norms_on_path("post", 2 * blocks)[0]
    wrong = {"one": blocks, "final": 2 * blocks + 1, "pre": 1, "none": 0}
    return Fresh({"n": str(blocks)}, float(answer), {name: float(value) for name, value in wrong.items()})


def rms(rng: np.random.Generator) -> Fresh:
    """RMSNorm of four numbers whose rms is whole."""
    x = _whole_rms(rng)
    square = (x**2).mean()
    wrong = {
        "centred": float(layer_norm(x)[3]),
        "sum": float(x[3] / np.sqrt((x**2).sum())),
        "root": float(x[3] / square),
    }
    values = {
        "x": row(x),
        "square": row([square])[1:-1],
        "rms": row([np.sqrt(square)])[1:-1],
        "last": row([x[3]])[1:-1],
    }
    return Fresh(values, float(rms_norm(x)[3]), wrong, TWO_DECIMALS)


def score(rng: np.random.Generator) -> Fresh:
    """sin((m - n) theta) for q = [1, 0] and k = [0, 1]."""
    theta, n = pick(rng, [0.1, 0.2, 0.25, 0.3, 0.4]), whole(rng, 3, 30)
    m = n + whole(rng, 1, 4)
    answer = float(rotate([1.0, 0.0], [m * theta]) @ rotate([0.0, 1.0], [n * theta]))
    angle = (m - n) * theta
    wrong = {
        "sign": -answer,
        "cosine": math.cos(angle),
        "sum": math.sin((m + n) * theta),
        "degrees": math.sin(math.radians(angle)),
    }
    values = {"theta": f"{theta:g}", "m": str(m), "n": str(n), "distance": str(m - n), "angle": f"{angle:.4g}"}
    return Fresh(values, answer, wrong, TWO_DECIMALS)


def gate(rng: np.random.Generator) -> Fresh:
    """SiLU(g) u."""
    g, u = whole(rng, -2, 2), whole(rng, -5, 5)
    answer = float(silu(g) * u)
    wrong = {
        "value": float(silu(u) * g),
        "sigmoid": float(sigmoid(g) * u),
        "relu": float(relu(g) * u),
        "alone": float(silu(g)),
    }
    values = {"g": str(g), "u": str(u), "power": f"{math.exp(-g):.3f}", "silu": f"{float(silu(g)):.4f}"}
    return Fresh(values, answer, wrong, TWO_DECIMALS)


def width(rng: np.random.Generator) -> Fresh:
    """d_ff' = 2/3 d_ff."""
    d_ff = 3 * whole(rng, 100, 4000)
    wrong = {"same": float(d_ff), "more": d_ff * 1.5, "third": d_ff / 3, "half": d_ff / 2}
    return Fresh({"d_ff": str(d_ff)}, d_ff * 2 / 3, wrong)


def _whole_rms(rng: np.random.Generator) -> Array:
    while True:
        x = rng.integers(-9, 10, 4).astype(np.float64)
        root = np.sqrt((x**2).mean())
        if len(set(abs(x))) > 1 and x[3] and root == round(root):
            return x


TESTS = {"path": path, "rms": rms, "score": score, "gate": gate, "width": width}
