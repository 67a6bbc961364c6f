"""Lab `order`: attention cannot see order.

State: `orders` two lists of at most 8 words; `watch` a word of both; `pe` whether a position signal is added, and
`signal` which one: `sines` (rows sin pos, cos pos) or `counting` (pos itself added to every number); `start` the
first word's position; `causal` whether a word sees only itself and those before it; `vectors` two numbers a word, over
those of cat, dog and car (a word that has none gets two made from its letters).

Result: `orders`, for each `words`, `positions`, `vectors` [L, 2], `signal` [L, 2] (what is added), `inputs` [L, 2],
`weights` [L, L], `outputs` [L, 2], `watched` (index of the watched word), `output` (its two numbers); `difference`
(largest between the two outputs), `equal`, `same_words` (the two orders hold the same words); `numbers` first, second.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.attention import attend
from cutaway.reference.functions import Array
from cutaway.reference.masks import causal
from cutaway.reference.positions import sinusoidal

VECTORS = {"cat": [2.0, 0.0], "dog": [1.0, 1.0], "car": [0.0, 2.0]}
SIGNALS = ("sines", "counting")
DEFAULT: dict[str, Any] = {
    "orders": [["cat", "dog", "car"], ["car", "dog", "cat"]],
    "watch": "cat",
    "pe": False,
    "signal": "sines",
    "start": 0,
    "causal": False,
    "vectors": VECTORS,
}
MOST_WORDS = 8
SAME = 1e-9


def run(state: dict, say: Say) -> dict:
    """Both orders through attention with Q = K = V = the inputs, scores divided by sqrt 2."""
    values = State("order", DEFAULT, state)
    orders = _orders(values)
    vectors = _vectors(values)
    watch = values.values["watch"]
    if not isinstance(watch, str) or any(watch not in words for words in orders):
        raise values.refuse("watch", "a word of both orders")
    seen = [_attended(words, vectors, values) for words in orders]
    for each in seen:
        each["watched"] = each["words"].index(watch)
        each["output"] = each["outputs"][each["watched"]]
    first, second = (each["output"] for each in seen)
    difference = float(np.abs(first - second).max())
    result = {
        "orders": seen,
        "difference": difference,
        "equal": difference <= SAME,
        "same_words": sorted(orders[0]) == sorted(orders[1]),
        "numbers": {"first": show.vector(first), "second": show.vector(second)},
    }
    return show.plain(result | {"text": _sentence(say, watch, result)})


def _attended(words: list[str], vectors: dict[str, list[float]], values: State) -> dict[str, Any]:
    positions = values.whole("start", 0, 1000) + np.arange(len(words))
    x = np.array([vectors.get(word, _from_letters(word)) for word in words])
    signal = _signal(values, positions)
    rows = np.arange(len(words))
    visible = causal(rows[:, None], rows) if values.flag("causal") else True
    outputs, weights = attend(x + signal, x + signal, x + signal, visible)
    return {
        "words": words, "positions": positions, "vectors": x, "signal": signal,
        "inputs": x + signal, "weights": weights, "outputs": outputs,
    }  # fmt: skip


def _signal(values: State, positions: np.ndarray) -> Array:
    kind = values.choice("signal", SIGNALS)
    if not values.flag("pe"):
        return np.zeros((len(positions), 2))
    if kind == "sines":
        return sinusoidal(positions, 2)
    return np.repeat(positions[:, None].astype(np.float64), 2, axis=1)


def _from_letters(word: str) -> list[float]:
    """Two numbers between -2 and 2 in steps of 0.5: always the same for the same word."""
    code = zlib.crc32(word.encode(errors="replace"))
    return [code % 9 / 2 - 2, code // 9 % 9 / 2 - 2]


def _orders(values: State) -> list[list[str]]:
    orders = values.values["orders"]
    if not isinstance(orders, list) or len(orders) != 2 or not all(_is_sentence(words) for words in orders):
        raise values.refuse("orders", f"two lists of 1 to {MOST_WORDS} words, each of at most 24 characters")
    return orders


def _is_sentence(words: Any) -> bool:
    if not isinstance(words, list) or not 1 <= len(words) <= MOST_WORDS:
        return False
    return all(isinstance(word, str) and 0 < len(word.strip()) == len(word) <= 24 for word in words)


def _vectors(values: State) -> dict[str, list[float]]:
    vectors = values.values["vectors"]
    if not isinstance(vectors, dict) or len(vectors) > 64:
        raise values.refuse("vectors", "two numbers for each of at most 64 words")
    return VECTORS | {word: _pair(f"vectors.{word}", pair) for word, pair in vectors.items()}


def _pair(name: str, pair: Any) -> list[float]:
    return State("order", {name: None}, {name: pair}).array(name, (2,), 100).tolist()


def _sentence(say: Say, watch: str, result: dict) -> str:
    key = "other_words" if not result["same_words"] else "equal" if result["equal"] else "different"
    return say(key, watch=watch, **result["numbers"])
