"""Lab `pe`: the positional encoding as a picture.

State: `L` positions and `d` columns (even), L * d at most 4,096; `row` the picked position (below L); `word` four
numbers and `factor` what they are multiplied by in the worked example.

Result: `table` [L, d] between -1 and 1; `row` and `vector` (the picked row); `speeds` [d/2] radians a position and
`turns` [d/2], the positions of one full turn; `rotation` for each pair the 2x2 matrix that turns any row's pair into
that of the next position; `worked`: `word`, `position` (row 0), `plain` (word + position), `factor`, `scaled`
(word * factor + position), `root` (sqrt d); `numbers` vector, slowest, root, plain, scaled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array
from cutaway.reference.positions import sinusoidal, sinusoidal_frequencies

DEFAULT: dict[str, Any] = {"L": 16, "d": 8, "row": 3, "word": [-0.77, -0.62, 0.91, -0.28], "factor": 2.0}
MOST_NUMBERS = 4096


def run(state: dict, say: Say) -> dict:
    """PE[pos] = sin, cos of pos / 10000^(2k/d) in columns 2k, 2k+1 (arXiv:1706.03762)."""
    values = State("pe", DEFAULT, state)
    length, width = values.whole("L", 1, 64), values.whole("d", 2, 512, step=2)
    if length * width > MOST_NUMBERS:
        raise values.refuse(
            "L", f"at most {MOST_NUMBERS // width} with d {width}: the picture has {MOST_NUMBERS} cells"
        )
    row = values.whole("row", 0, length - 1)
    table, speeds = sinusoidal(np.arange(length), width), sinusoidal_frequencies(width)
    worked = _worked(values.array("word", (4,), 100), values.number("factor", -100, 100), width)
    numbers = {
        "vector": show.vector(table[row]),
        "slowest": f"{speeds[-1]:.4g}",
        "root": show.short(worked["root"]),
        "plain": show.vector(worked["plain"]),
        "scaled": show.vector(worked["scaled"]),
    }
    return show.plain(
        {
            "table": table,
            "row": row,
            "vector": table[row],
            "speeds": speeds,
            "turns": 2 * math.pi / speeds,
            "rotation": [_rotation(speed) for speed in speeds],
            "worked": worked,
            "numbers": numbers,
            "text": say("seen", row=row, length=length, **numbers),
        }
    )


def _worked(word: Array, factor: float, width: int) -> dict[str, Any]:
    position = sinusoidal(0, 4)
    return {
        "word": word, "position": position, "plain": word + position, "factor": factor,
        "scaled": word * factor + position, "root": math.sqrt(width),
    }  # fmt: skip


def _rotation(speed: float) -> Array:
    """What (sin, cos) of any position is multiplied by to get the next position's."""
    return np.array([[np.cos(speed), np.sin(speed)], [-np.sin(speed), np.cos(speed)]])
