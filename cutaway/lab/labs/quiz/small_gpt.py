"""Skip test of `small-gpt`: weights of a block, questions of a batch, the first loss, a step, and a mean of seeds."""

from __future__ import annotations

import math

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, row, whole
from cutaway.reference.loss import cross_entropy
from cutaway.reference.optimizers import sgd

THREE_DECIMALS = 0.0005 + 1e-9


def weights(rng: np.random.Generator) -> Fresh:
    """4 d^2 + 2 d f."""
    d = 8 * whole(rng, 2, 16)
    f = d * whole(rng, 2, 5)
    attention, ffn = 4 * d * d, 2 * d * f
    wrong = {"attention": attention, "ffn": ffn, "gated": attention + 3 * d * f}
    values = {"d": str(d), "f": str(f)}
    return Fresh(values, float(attention + ffn), {name: float(value) for name, value in wrong.items()})


def questions(rng: np.random.Generator) -> Fresh:
    """Targets in a batch."""
    batch, n = whole(rng, 4, 32), whole(rng, 9, 65)
    answer = float(np.zeros((batch, n))[:, 1:].size)
    return Fresh({"B": str(batch), "n": str(n)}, answer, {"whole": float(batch * n), "pieces": float(batch)})


def start(rng: np.random.Generator) -> Fresh:
    """ln V."""
    vocab = whole(rng, 10, 5000)
    answer = cross_entropy(np.zeros((1, vocab)), [0])
    return Fresh({"V": str(vocab)}, answer, {"bits": answer / math.log(2), "perplexity": float(vocab)}, TWO_DECIMALS)


def step(rng: np.random.Generator) -> Fresh:
    """w - lr g."""
    w, g, lr = whole(rng, -20, 20) / 10, whole(rng, -30, 30) / 10, whole(rng, 1, 5) / 100
    answer = float(sgd(w, g, 0.0, lr)[0])
    wrong = {"up": w + lr * g, "rate": w - g}
    return Fresh({"w": f"{w:g}", "g": f"{g:g}", "lr": f"{lr:g}"}, answer, wrong, THREE_DECIMALS)


def scatter(rng: np.random.Generator) -> Fresh:
    """A difference of means."""
    one, two = np.round(rng.normal([[0.34], [0.36]], 0.04, (2, 5)), 2)
    answer = float(two.mean() - one.mean())
    wrong = {"first": float(two[0] - one[0]), "sign": -answer}
    values = {"one": row(one), "two": row(two), "m1": show.short(one.mean()), "m2": show.short(two.mean())}
    return Fresh(values, answer, wrong, THREE_DECIMALS)


TESTS = {"weights": weights, "questions": questions, "start": start, "sgd": step, "scatter": scatter}
