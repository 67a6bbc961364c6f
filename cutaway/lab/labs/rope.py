"""Lab `rope`: the score of two turned vectors depends on their distance alone.

State: `m`, `n` the positions of q and k, 0 to 10,000; `d_k` even, 2 to 16; `theta` the speed of a single pair (with
more pairs the speeds are 10000^(-2i/d_k)); `q`, `k` d_k numbers each, or null: [1, 0] and [0, 1] for a single pair,
otherwise default_rng(0)'s first normal numbers, q then k.

Result: `pairs`, one a dial: `speed`, `q_angle`, `k_angle` (radians turned), `q_before`, `q_after`, `k_before`,
`k_after` [2], `arc` (radians from k to q after the turn), `score` (this pair's part); `q`, `k` [d_k] before and
`q_after`, `k_after`; `score` their sum; `distance` m - n; `without` the score without turning; `score_float32` with
the angles rounded to float32; `lengths` {q, q_after, k, k_after}; `unit` (both have length 1 and one pair, so that the
score is the cosine of the arc); `numbers` score, distance, without, q_after, k_after, q_angle, k_angle.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array
from cutaway.reference.positions import rope_frequencies, rotate

DEFAULT: dict[str, Any] = {"m": 0, "n": 0, "theta": 0.5, "d_k": 2, "q": None, "k": None}
FARTHEST = 10_000


def run(state: dict, say: Say) -> dict:
    """Each pair of q turned by m * speed, of k by n * speed, then the dot product (arXiv:2104.09864)."""
    values = State("rope", DEFAULT, state)
    m, n, d_k = values.whole("m", 0, FARTHEST), values.whole("n", 0, FARTHEST), values.whole("d_k", 2, 16, step=2)
    theta = values.number("theta", 0, 10)
    speeds = np.array([theta]) if d_k == 2 else rope_frequencies(d_k)
    q, k = _vectors(values, d_k)
    q_after, k_after = rotate(q, m * speeds), rotate(k, n * speeds)
    parts = (q_after * k_after).reshape(-1, 2).sum(-1)
    score = float(parts.sum())
    lengths = {name: float(np.linalg.norm(v)) for name, v in
               (("q", q), ("q_after", q_after), ("k", k), ("k_after", k_after))}  # fmt: skip
    result = {
        "pairs": _pairs(speeds, (m, n), (q, q_after), (k, k_after)), "q": q, "k": k, "q_after": q_after,
        "k_after": k_after, "score": score, "distance": m - n, "without": float(q @ k),
        "score_float32": float(rotate(q, _rounded(m * speeds)) @ rotate(k, _rounded(n * speeds))), "lengths": lengths,
        "unit": d_k == 2 and all(math.isclose(length, 1) for length in lengths.values()),
    }  # fmt: skip
    for pair, part in zip(result["pairs"], parts, strict=True):
        pair["score"] = part
    numbers = _numbers(result)
    return show.plain(result | {"numbers": numbers, "text": say("seen", m=m, n=n, apart=abs(m - n), **numbers)})


def _vectors(values: State, d_k: int) -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    drawn = (generator.normal(size=d_k), generator.normal(size=d_k))
    usual = (np.array([1.0, 0.0]), np.array([0.0, 1.0])) if d_k == 2 else drawn
    q, k = (
        default if values.values[key] is None else values.array(key, (d_k,), 100)
        for key, default in zip(("q", "k"), usual, strict=True)
    )
    return q, k


def _rounded(angles: Array) -> Array:
    return angles.astype(np.float32).astype(np.float64)


def _pairs(speeds: Array, positions: tuple[int, int], q: tuple[Array, Array], k: tuple[Array, Array]) -> list[dict]:
    m, n = positions
    split = [v.reshape(-1, 2) for v in (*q, *k)]
    return [
        {
            "speed": speed, "q_angle": m * speed, "k_angle": n * speed, "q_before": q0, "q_after": q1,
            "k_before": k0, "k_after": k1, "arc": _arc(q1, k1),
        }
        for speed, q0, q1, k0, k1 in zip(speeds, *split, strict=True)
    ]  # fmt: skip


def _arc(q: Array, k: Array) -> float:
    """The angle from k to q, counter-clockwise, between -pi and pi."""
    return math.atan2(k[0] * q[1] - k[1] * q[0], float(q @ k))


def _numbers(result: dict) -> dict[str, str]:
    numbers = {key: show.fixed(result[key], 4) for key in ("score", "without")}
    numbers |= {key: show.vector(result[key], 4) for key in ("q_after", "k_after")}
    numbers |= {key: show.fixed(result["pairs"][0][key], 1) for key in ("q_angle", "k_angle")}
    return numbers | {"distance": str(result["distance"])}
