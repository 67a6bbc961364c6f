"""Skip test of `generation`: temperature, the three cuts, and two beams."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, pick, row, whole
from cutaway.reference.functions import Array, sigmoid
from cutaway.reference.sampling import Sampling, distribution


def temperature(rng: np.random.Generator) -> Fresh:
    """Softmax of two logits after division."""
    a, t = whole(rng, 1, 4), pick(rng, [0.5, 2, 4])
    answer = float(distribution([a, 0.0], Sampling(temperature=t))[0])
    wrong = {"plain": float(sigmoid(a)), "times": float(sigmoid(a * t)), "other": 1 - answer}
    return Fresh({"a": str(a), "t": f"{t:g}", "z": f"{a / t:g}"}, answer, wrong, TWO_DECIMALS)


def top_k(rng: np.random.Generator) -> Fresh:
    """The best after cutting to k."""
    p, k = _falling(rng), whole(rng, 2, 3)
    kept = float(p[:k].sum())
    answer = float(distribution(np.log(p), Sampling(top_k=k))[0])
    values = {"p": row(p), "k": str(k), "kept": show.short(kept)}
    return Fresh(values, answer, {"unscaled": float(p[0]), "equal": 1 / k}, TWO_DECIMALS)


def top_p(rng: np.random.Generator) -> Fresh:
    """How many reach p, the one that crosses included."""
    p, top = _falling(rng), whole(rng, 50, 93) / 100
    kept = int((distribution(np.log(p), Sampling(top_p=top)) > 0).sum())
    if np.abs(np.cumsum(p) - top).min() < 0.005 or kept == len(p):
        return top_p(rng)
    return Fresh({"p": row(p), "top": f"{top:g}"}, float(kept), {"short": kept - 1.0, "all": float(len(p))})


def min_p(rng: np.random.Generator) -> Fresh:
    """How many reach a share of the best."""
    p, share = _falling(rng), pick(rng, [0.1, 0.2, 0.3, 0.4])
    bar = share * p[0]
    if np.abs(p - bar).min() < 0.002:
        return min_p(rng)
    kept = int((distribution(np.log(p), Sampling(min_p=share)) > 0).sum())
    values = {"p": row(p), "share": f"{share:g}", "best": f"{p[0]:g}", "bar": show.short(bar)}
    return Fresh(values, float(kept), {"absolute": float((p >= share).sum()), "best": 1.0})


def beam(rng: np.random.Generator) -> Fresh:
    """The better of two paths, which is not the greedy one."""
    a, a2, b2 = whole(rng, 51, 65) / 100, whole(rng, 20, 40) / 100, whole(rng, 75, 95) / 100
    b = round(0.97 - a, 2)
    wrong = {"greedy": a * a2, "mixed": a * b2}
    values = {name: f"{value:g}" for name, value in (("a", a), ("b", b), ("a2", a2), ("b2", b2))}
    return Fresh(values, max(a * a2, b * b2), wrong, 0.0005 + 1e-9)


def _falling(rng: np.random.Generator) -> Array:
    """Five probabilities in hundredths, falling."""
    while True:
        p = np.sort(rng.multinomial(100, [0.4, 0.25, 0.2, 0.1, 0.05]))[::-1] / 100
        if len(set(p)) == 5 and p[-1] > 0:
            return p


TESTS = {"temperature": temperature, "topk": top_k, "topp": top_p, "minp": min_p, "beam": beam}
