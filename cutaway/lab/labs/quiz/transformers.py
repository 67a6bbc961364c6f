"""Skip test of `transformers`: input of a block, masked weights, the triangle, cross-attention, a chat's length."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, row, whole
from cutaway.reference.attention import pattern
from cutaway.reference.functions import softmax
from cutaway.reference.masks import causal
from cutaway.reference.positions import sinusoidal


def position(rng: np.random.Generator) -> Fresh:
    """Embedding plus position, last column of four."""
    x, pos = rng.integers(-4, 5, 4) / 2, whole(rng, 5, 60)
    row_ = sinusoidal(pos, 4)
    wrong = {"alone": float(row_[3]), "sine": float(x[3] + row_[2]), "none": float(x[3])}
    return Fresh({"x": row(x), "pos": str(pos), "last": row([x[3]])[1:-1]}, float((x + row_)[3]), wrong, TWO_DECIMALS)


def weight(rng: np.random.Generator) -> Fresh:
    """The first weight of row 1 under a causal mask."""
    scores = rng.integers(-3, 4, 4).astype(np.float64)
    weights = pattern(scores, causal(1, np.arange(4)))
    plain = scores[0] / scores[:2].sum() if scores[:2].sum() else 0.0
    wrong = {"unmasked": float(softmax(scores)[0]), "other": float(weights[1]), "plain": float(plain)}
    values = {"scores": row(scores), "a": str(int(scores[0])), "b": str(int(scores[1]))}
    return Fresh(values, float(weights[0]), wrong, TWO_DECIMALS)


def visible(rng: np.random.Generator) -> Fresh:
    """Weights on and below the diagonal."""
    length = whole(rng, 5, 40)
    places = np.arange(length)
    answer = float(causal(places[:, None], places).sum())
    wrong = {"all": float(length**2), "strict": answer - length, "half": length**2 / 2}
    return Fresh({"L": str(length), "more": str(length + 1)}, answer, wrong)


def cross(rng: np.random.Generator) -> Fresh:
    """The shape of cross-attention weights."""
    source, target = whole(rng, 8, 30), whole(rng, 2, 7)
    wrong = {"turned": [source, target], "source": [source, source], "target": [target, target]}
    return Fresh({"S": str(source), "T": str(target)}, [target, source], wrong)


def chat(rng: np.random.Generator) -> Fresh:
    """The ids read before the second answer."""
    system, first, answer, second = (whole(rng, 8, 40) for _ in range(4))
    total = system + first + answer + second + 4
    wrong = {"new": second + 4, "opening": total - 4, "system": total - system, "own": total - answer}
    values = {"system": system, "first": first, "answer": answer, "second": second}
    numbers = {name: float(value) for name, value in wrong.items()}
    return Fresh({name: str(value) for name, value in values.items()}, float(total), numbers)


TESTS = {"position": position, "weight": weight, "visible": visible, "cross": cross, "chat": chat}
