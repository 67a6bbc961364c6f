"""Lab `layernorm`: which axis is normalised.

State: `word` 4 numbers; `table` 3 words of 4 numbers; `axis` `word` or `column` (for the table); `eps` 0 to 1, inside
the root; `gain` and `shift` 4 numbers each, one a column, for both.

Result: `mean`, `std` (divided by n) of the word, `out` [4], `mean_after`, `std_after`, `flat` (the word's std is 0, so
zeros are shown); `table_mean`, `table_std` (a word's or a column's), `table_out` [3, 4], `table_flat` (which of them
have std 0); `moves` [3, 3]: whether editing word j moves word i, tried out; `others_move` whether any other word
does; `numbers` mean, std, mean_after, std_after, out, row_0, row_1, row_2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array
from cutaway.reference.norms import centre, layer_norm

DEFAULT: dict[str, Any] = {
    "word": [1.0, 2.0, 3.0, 6.0],
    "table": [[1.0, 2.0, 3.0, 6.0], [10.0, 10.0, 12.0, 8.0], [-1.0, 0.0, 1.0, 0.0]],
    "axis": "word",
    "eps": 0.0,
    "gain": [1.0, 1.0, 1.0, 1.0],
    "shift": [0.0, 0.0, 0.0, 0.0],
}
AXES = {"word": -1, "column": 0}
LIMIT = 1e6


def run(state: dict, say: Say) -> dict:
    """(x - mean) / sqrt(var + eps) * gain + shift, a word's own numbers or a column's."""
    values = State("layernorm", DEFAULT, state)
    word, table = values.array("word", (4,), LIMIT), values.array("table", (3, 4), LIMIT)
    axis, eps = AXES[values.choice("axis", tuple(AXES))], values.number("eps", 0, 1)
    gain, shift = values.array("gain", (4,), 1000), values.array("shift", (4,), 1000)

    def norm(x: Array, along: int = -1) -> Array:
        return layer_norm(x, eps=eps, axis=along) * gain + shift

    out = norm(word)
    moves = _moves(table, lambda x: norm(x, axis))
    result = {
        "mean": word.mean(), "std": _std(word), "out": out, "mean_after": out.mean(), "std_after": _std(out),
        "flat": bool(_std(word) == 0), "table_mean": table.mean(axis), "table_std": _std(table, axis),
        "table_out": norm(table, axis), "table_flat": _std(table, axis) == 0, "moves": moves,
        "others_move": bool((moves & ~np.eye(3, dtype=bool)).any()),
    }  # fmt: skip
    return show.plain(result | {"numbers": _numbers(result), "text": _sentence(say, result)})


def _std(x: Array, axis: int = -1) -> Array:
    return np.sqrt((centre(x, axis) ** 2).mean(axis))


def _moves(table: Array, norm: Any) -> np.ndarray:
    """Word i's change when word j is edited: its first number raised by half the table's spread and one."""
    before = norm(table)
    moves = np.zeros((3, 3), dtype=bool)
    for j in range(3):
        edited = table.copy()
        edited[j, 0] += 1 + np.ptp(table) / 2
        moves[:, j] = (norm(edited) != before).any(-1)
    return moves


def _numbers(result: dict) -> dict[str, str]:
    numbers = {key: show.fixed(result[key]) for key in ("mean", "std", "mean_after", "std_after")}
    numbers["out"] = show.vector(result["out"], 3)
    return numbers | {f"row_{i}": show.vector(row) for i, row in enumerate(result["table_out"])}


def _sentence(say: Say, result: dict) -> str:
    word = say("flat" if result["flat"] else "word", **_numbers(result))
    return f"{word} {say('move' if result['others_move'] else 'still')}"
