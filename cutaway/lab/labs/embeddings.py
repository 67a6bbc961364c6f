"""Lab `embeddings`: from a word to its row, and what the rows' geometry says.

State: `text` a list of 1 to 10 of the lab's words; `pick` the word to compare; `measure` dot, cosine or distance;
`table` [10, 2] numbers from -4 to 4, one row a word; `vocab_size` and `d_model` of a real model's table; `tied` whether
the output layer uses the same table.

Result: `vocabulary`; `ids` [L]; `one_hot` [L, 10]; `table` [10, 2]; `vectors` [L, 2], the rows looked up; `product`
[L, 2], one_hot @ table, and `same` (both are equal); `pick`, `measure`, `scores` [10] of the picked word with each,
`order` [10] the words from nearest to farthest, the word itself first; `cost`: `parameters`, `bytes` (two a number),
`multiplications` of the product, which a look-up saves; `numbers` vectors, nearest, score, parameters, bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array

VOCABULARY = ("the", "cat", "dog", "kitten", "car", "bus", "runs", "sleeps", "red", "fast")
TABLE = [
    [0.0, 0.5], [2.0, 2.0], [3.0, 1.0], [1.5, 2.0], [-2.0, 2.0], [-2.5, 1.5], [1.0, -2.5], [2.0, -2.0],
    [-1.0, -1.0], [-2.0, -1.5],
]  # fmt: skip
MEASURES = ("dot", "cosine", "distance")
LIMIT = 4.0
DEFAULT: dict[str, Any] = {
    "text": ["the", "cat", "sleeps"], "pick": "cat", "measure": "cosine", "table": TABLE,
    "vocab_size": 49152, "d_model": 576, "tied": True,
}  # fmt: skip


def run(state: dict, say: Say) -> dict:
    """Look-up as a row of the table and as one-hot @ table; similarity of the picked row with all."""
    values = State("embeddings", DEFAULT, state)
    ids = np.array([VOCABULARY.index(word) for word in _text(values)])
    table = values.array("table", (len(VOCABULARY), 2), LIMIT)
    pick, measure = values.choice("pick", VOCABULARY), values.choice("measure", MEASURES)
    one_hot = (ids[:, None] == np.arange(len(VOCABULARY))).astype(np.float64)
    scores = _scores(table, VOCABULARY.index(pick), measure)
    order = [word for word in _nearest_first(scores, measure) if word != pick]
    result = {
        "vocabulary": VOCABULARY, "ids": ids, "one_hot": one_hot, "table": table, "vectors": table[ids],
        "product": one_hot @ table, "same": bool((one_hot @ table == table[ids]).all()), "pick": pick,
        "measure": measure, "scores": scores, "order": [pick, *order], "cost": _cost(values),
    }  # fmt: skip
    score = scores[VOCABULARY.index(order[0])]
    numbers = {
        "vectors": ", ".join(show.short_vector(row) for row in table[ids]),
        "nearest": order[0],
        "score": show.fixed(score),
        "parameters": f"{result['cost']['parameters']:,}",
        "bytes": f"{result['cost']['bytes'] / 1e6:,.1f} MB",
    }
    words = " ".join(values.values["text"])
    text = say("seen", words=words, ids=show.short_vector(ids), pick=pick, measure=say(measure), **numbers)
    return show.plain(result | {"numbers": numbers, "text": text})


def _scores(table: Array, pick: int, measure: str) -> Array:
    """Of the picked row with every row: the dot product, the cosine (0 beside a zero vector), or the distance."""
    if measure == "distance":
        return np.linalg.norm(table - table[pick], axis=-1)
    dots = table @ table[pick]
    if measure == "dot":
        return dots
    lengths = np.linalg.norm(table, axis=-1) * np.linalg.norm(table[pick])
    return np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)


def _nearest_first(scores: Array, measure: str) -> list[str]:
    order = np.argsort(scores if measure == "distance" else -scores, kind="stable")
    return [VOCABULARY[i] for i in order]


def _cost(values: State) -> dict[str, int]:
    vocab_size, d_model = values.whole("vocab_size", 2, 1_000_000), values.whole("d_model", 1, 32_768)
    parameters = vocab_size * d_model * (1 if values.flag("tied") else 2)
    length = len(values.values["text"])
    return {"parameters": parameters, "bytes": 2 * parameters, "multiplications": length * vocab_size * d_model}


def _text(values: State) -> list[str]:
    text = values.values["text"]
    if not isinstance(text, list) or not 1 <= len(text) <= 10 or any(word not in VOCABULARY for word in text):
        raise values.refuse("text", f"a list of 1 to 10 of {', '.join(VOCABULARY)}")
    return text
