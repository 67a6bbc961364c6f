"""Skip test of `embeddings`: merging pairs, shapes, rows, cosine, and the table's weights."""

from __future__ import annotations

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.quiz.fresh import TWO_DECIMALS, Fresh, row, table, whole


def merge(rng: np.random.Generator) -> Fresh:
    """Tokens of a text after the merges t h -> th and th e -> the."""
    pieces = [str(rng.choice(["the", "a", "n", "s", "re"])) for _ in range(whole(rng, 4, 7))]
    pieces = ["the", *pieces, "the"]
    tokens = [token for piece in pieces for token in ([piece] if piece == "the" else piece)]
    n = tokens.count("the")
    wrong = {"letters": len("".join(pieces)), "first": len(tokens) + n, "words": n}
    values = {"text": "".join(pieces), "pieces": " ".join(tokens)}
    return Fresh(values, float(len(tokens)), {name: float(value) for name, value in wrong.items()})


def shape(rng: np.random.Generator) -> Fresh:
    """The shape of a look-up."""
    batch, length, vocab, width = whole(rng, 2, 8), whole(rng, 10, 30), whole(rng, 100, 900), whole(rng, 40, 90)
    found = np.zeros((vocab, width))[np.zeros((batch, length), dtype=int)]
    wrong = {"hot": [batch, length, vocab], "ids": [batch, length], "flat": [batch * length, width]}
    values = {"B": str(batch), "L": str(length), "V": str(vocab), "d": str(width)}
    return Fresh(values, list(found.shape), wrong)


def row_of(rng: np.random.Generator) -> Fresh:
    """A number of one row."""
    numbers, id = rng.permutation(np.arange(-8, 9))[:8].reshape(4, 2), whole(rng, 1, 3)
    wrong = {"one": float(numbers[id - 1, 1]), "first": float(numbers[id, 0])}
    return Fresh({"E": table(numbers), "id": str(id), "row": row(numbers[id])}, float(numbers[id, 1]), wrong)


def cosine(rng: np.random.Generator) -> Fresh:
    """Dot product over both lengths."""
    a, b = rng.integers(-5, 6, (2, 2)).astype(np.float64) + [[0.0, 0.0], [0.5, 0.0]]
    la, lb = np.linalg.norm(a), np.linalg.norm(b)
    if la == 0:
        return cosine(rng)
    dot = float(a @ b)
    wrong = {"dot": dot, "half": float(dot / la), "distance": float(np.linalg.norm(a - b))}
    values = {"a": row(a), "b": row(b), "dot": show.short(dot), "la": show.fixed(la), "lb": show.fixed(lb)}
    return Fresh(values, float(dot / (la * lb)), wrong, TWO_DECIMALS)


def cost(rng: np.random.Generator) -> Fresh:
    """The weights of a tied table."""
    vocab, width = 1000 * whole(rng, 8, 60), 32 * whole(rng, 4, 30)
    wrong = {"twice": 2 * vocab * width, "sum": vocab + width, "square": vocab**2}
    values = {"V": str(vocab), "d": str(width)}
    return Fresh(values, float(vocab * width), {name: float(value) for name, value in wrong.items()})


TESTS = {"merge": merge, "shape": shape, "row": row_of, "cosine": cosine, "cost": cost}
