"""Skip test of `whole-model`: logits, losses, perplexity, and the gradient at the logits."""

from __future__ import annotations

import math

import numpy as np

from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, whole
from cutaway.reference.functions import linear
from cutaway.reference.loss import cross_entropy, cross_entropy_gradient, perplexity


def logits(rng: np.random.Generator) -> Fresh:
    """The shape of the logits."""
    batch, tokens, width, vocab = whole(rng, 2, 4), whole(rng, 5, 9), whole(rng, 16, 40), whole(rng, 50, 90)
    found = linear(np.zeros((batch, tokens, width)), np.zeros((vocab, width)))
    wrong = {"stream": [batch, tokens, width], "last": [batch, vocab], "weights": [batch, tokens, tokens]}
    values = {"B": str(batch), "T": str(tokens), "d": str(width), "V": str(vocab)}
    return Fresh(values, list(found.shape), wrong)


def loss(rng: np.random.Generator) -> Fresh:
    """-ln p."""
    p = whole(rng, 1, 18) / 20
    answer = cross_entropy(np.log([[p, 1 - p]]), [0])
    wrong = {"sign": -answer, "bits": answer / math.log(2), "rest": 1 - p}
    return Fresh({"p": f"{p:g}"}, answer, wrong, TWO_DECIMALS)


def mean(rng: np.random.Generator) -> Fresh:
    """The mean of three losses."""
    p = rng.choice(np.arange(1, 10), 3, replace=False) / 10
    answer = cross_entropy(np.log(np.stack([p, 1 - p], -1)), [0, 0, 0])
    wrong = {"sum": 3 * answer, "inside": -math.log(p.mean())}
    values = {name: f"{value:g}" for name, value in zip("abc", p, strict=True)}
    return Fresh(values, answer, wrong, TWO_DECIMALS)


def undecided(rng: np.random.Generator) -> Fresh:
    """Perplexity of an even choice."""
    n = whole(rng, 3, 60)
    cost = cross_entropy(np.zeros((1, n)), [0])
    return Fresh({"n": str(n)}, perplexity(cost), {"loss": cost, "bits": cost / math.log(2)}, TWO_DECIMALS)


def gradient(rng: np.random.Generator) -> Fresh:
    """Probability minus one-hot, at a token that was not right."""
    p = whole(rng, 1, 19) / 20
    answer = float(cross_entropy_gradient(np.log([[p, 1 - p]]), [1])[0, 0])
    return Fresh({"p": f"{p:g}"}, answer, {"right": p - 1, "log": -math.log(p)}, TWO_DECIMALS)


TESTS = {"logits": logits, "loss": loss, "mean": mean, "perplexity": undecided, "gradient": gradient}
