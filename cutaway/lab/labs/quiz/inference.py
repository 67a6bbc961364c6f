"""Skip test of `inference`: products, bytes, what fits, and the speed of decoding."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs.quiz.fresh import Fresh, pick, whole
from cutaway.reference.masks import causal

ONE_DECIMAL = 0.05 + 1e-9


def products(rng: np.random.Generator) -> Fresh:
    """The triangle."""
    n = whole(rng, 6, 40)
    places = np.arange(n)
    answer = float(causal(places[:, None], places).sum())
    steps = range(1, n + 1)
    wrong = {"square": float(n * n), "without": float(sum(t * (t + 1) // 2 for t in steps)), "self": answer - n}
    return Fresh({"n": str(n), "more": str(n + 1)}, answer, wrong)


def size(rng: np.random.Generator) -> Fresh:
    """Bytes a token."""
    layers, kv, groups, width = (
        whole(rng, 12, 40),
        pick(rng, [1, 2, 3, 4, 8]),
        whole(rng, 2, 5),
        pick(rng, [32, 64, 128]),
    )
    answer = 2.0 * layers * kv * width * 2
    wrong = {"queries": answer * groups, "keys": answer / 2, "layer": answer / layers}
    values = {"layers": str(layers), "heads": str(kv * groups), "kv": str(kv), "width": str(width)}
    return Fresh(values, answer, wrong)


def fits(rng: np.random.Generator) -> Fresh:
    """Thousands of tokens in a memory."""
    memory, kilobytes = whole(rng, 2, 60), pick(rng, [20, 25, 40, 50, 100, 125, 200])
    answer = memory * 1e6 / kilobytes / 1000
    wrong = {"tokens": answer * 1000, "turned": kilobytes / memory}
    return Fresh({"memory": str(memory), "kb": str(kilobytes)}, answer, wrong)


def speed(rng: np.random.Generator) -> Fresh:
    """One text."""
    weights, cache, bandwidth = whole(rng, 2, 16), whole(rng, 1, 4), 50 * whole(rng, 1, 40)
    answer = bandwidth / (weights + cache)
    wrong = {"cache": bandwidth / weights, "seconds": 1 / answer}
    values = {"weights": str(weights), "cache": str(cache), "bandwidth": str(bandwidth)}
    return Fresh(values, answer, wrong, ONE_DECIMAL)


def batch(rng: np.random.Generator) -> Fresh:
    """Many texts."""
    weights, cache, bandwidth, n = (
        whole(rng, 4, 16),
        pick(rng, [0.25, 0.5, 1]),
        100 * whole(rng, 2, 20),
        whole(rng, 4, 16),
    )
    answer = n * bandwidth / (weights + n * cache)
    wrong = {"one": answer / n, "weights": bandwidth / (weights + cache), "cache": n * bandwidth / (weights + cache)}
    values = {"weights": str(weights), "cache": f"{cache:g}", "bandwidth": str(bandwidth), "n": str(n)}
    return Fresh(values, answer, wrong, ONE_DECIMAL)


TESTS = {"products": products, "bytes": size, "fits": fits, "speed": speed, "batch": batch}
