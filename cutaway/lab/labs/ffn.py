"""Lab `ffn`: the feed-forward network, in which no word sees another.

State: `X` two numbers for each of cat, dog, car, from -4 to 4; `follow` one of them or null.

Result: `words`; `X` [3, 2]; `pre` [3, 4] before ReLU; `hidden` [3, 4]; `on` [3, 4] (pre above 0); `counts` [3];
`output` [3, 2]; `alone` [3, 2], each word run by itself, and `same_alone`; `follow`; `W1`, `b1`, `W2`, `b2`; `shapes`
[name, shape] in order; `lines` for each unit `weights` (a, b), `bias`, `segment` (the ends within -4 ... 4 of the line
a x + b y + bias = 0, on whose one side the unit is on; null if outside);
`numbers` for each word hidden_*, on_*, output_*.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array, relu

WORDS = ("cat", "dog", "car")
W1 = np.array([[1.0, -1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 1.0]])
B1 = np.array([0.0, 0.0, 1.0, -2.0])
W2 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])
B2 = np.zeros(2)
RANGE = 4.0
DEFAULT: dict[str, Any] = {"X": [[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]], "follow": None}


def run(state: dict, say: Say) -> dict:
    """ReLU(X W1 + b1) W2 + b2 with the page's W1 and b1 [in, out]; a unit is on strictly above 0."""
    values = State("ffn", DEFAULT, state)
    x = values.array("X", (3, 2), RANGE)
    follow = None if values.values["follow"] is None else values.choice("follow", WORDS)
    pre, output = _network(x)
    alone = np.concatenate([_network(x[i : i + 1])[1] for i in range(3)])
    result = {
        "words": WORDS, "X": x, "pre": pre, "hidden": relu(pre), "on": pre > 0, "counts": (pre > 0).sum(-1),
        "output": output, "alone": alone, "same_alone": bool((alone == output).all()), "follow": follow,
        "W1": W1, "b1": B1, "W2": W2, "b2": B2, "shapes": _shapes(), "lines": _lines(),
    }  # fmt: skip
    return show.plain(result | {"numbers": _numbers(say, result), "text": _sentence(say, result)})


def _network(x: Array) -> tuple[Array, Array]:
    pre = _affine(x, W1, B1)
    return pre, _affine(relu(pre), W2, B2)


def _affine(x: Array, weight: Array, bias: Array) -> Array:
    """x W + b, added up in one order whatever the number of rows, so that a row is the same to its last bit."""
    return (x[..., :, None] * weight).sum(-2) + bias


def _shapes() -> list[list[str]]:
    return [["X", "(3, 2)"], ["W1", "(2, 4)"], ["hidden", "(3, 4)"], ["W2", "(4, 2)"], ["output", "(3, 2)"]]


def _lines() -> list[dict[str, Any]]:
    return [
        {"weights": weights, "bias": bias, "segment": _segment(weights, bias)}
        for weights, bias in zip(W1.T, B1, strict=True)
    ]


def _segment(weights: Array, bias: float) -> list[list[float]] | None:
    """The two ends of a x + b y + bias = 0 within the plane that is drawn."""
    (a, b), ends = weights, []
    for side in (-RANGE, RANGE):
        if b and abs(y := -(bias + a * side) / b) <= RANGE:
            ends.append([side, float(y)])
        if a and abs(x := -(bias + b * side) / a) <= RANGE:
            ends.append([float(x), side])
    unique = [list(end) for end in dict.fromkeys(map(tuple, ends))]
    return unique[:2] if len(unique) >= 2 else None


def _numbers(say: Say, result: dict) -> dict[str, str]:
    numbers = {}
    for i, word in enumerate(WORDS):
        numbers[f"hidden_{word}"] = show.short_vector(result["hidden"][i], 2)
        numbers[f"on_{word}"] = say("on", count=result["counts"][i])
        numbers[f"output_{word}"] = show.short_vector(result["output"][i], 2)
    return numbers


def _sentence(say: Say, result: dict) -> str:
    index = WORDS.index(result["follow"] or "cat")
    hidden, output = (show.short_vector(result[key][index], 2) for key in ("hidden", "output"))
    x, on = show.short_vector(result["X"][index], 2), result["counts"][index]
    return say("seen", word=WORDS[index], x=x, hidden=hidden, on=on, output=output)
