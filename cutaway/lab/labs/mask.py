"""Lab `mask`: the causal mask and the softmax beside it.

State: `masked` whether the mask is on; `scores` 4x4 numbers, row = query, column = key.

Result: `visible` [4, 4]; `masked_scores` [4, 4] with null where the mask puts minus infinity; `weights` [4, 4], each
row's softmax; `row_sums` [4]; `future` [4], the weight a row gives to later positions; `numbers` row_0 ... row_3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.attention import pattern
from cutaway.reference.masks import causal, full

SCORES = [
    [1.6243453636632417, -0.6117564136500754, -0.5281717522634557, -1.0729686221561705],
    [0.8654076293246785, -2.3015386968802827, 1.74481176421648, -0.7612069008951028],
    [0.31903909605709857, -0.2493703754774101, 1.4621079370449741, -2.060140709497654],
    [-0.3224172040135075, -0.38405435466841564, 1.1337694423354374, -1.0998912673140309],
]
DEFAULT: dict[str, Any] = {"masked": True, "scores": SCORES}


def run(state: dict, say: Say) -> dict:
    """softmax over the visible keys of each row; the default scores are RandomState(1)'s first 16 normal numbers."""
    values = State("mask", DEFAULT, state)
    scores = values.array("scores", (4, 4), 1e6)
    rows = np.arange(4)
    masked = values.flag("masked")
    visible = (causal if masked else full)(rows[:, None], rows)
    weights = pattern(scores, visible)
    future = np.where(rows > rows[:, None], weights, 0.0).sum(-1)
    numbers = {f"row_{i}": " ".join(show.fixed(w, 4) for w in row) for i, row in enumerate(weights)}
    return show.plain(
        {
            "visible": visible,
            "masked_scores": [
                [s if v else None for s, v in zip(*row, strict=True)] for row in zip(scores, visible, strict=True)
            ],
            "weights": weights,
            "row_sums": weights.sum(-1),
            "future": future,
            "numbers": numbers,
            "text": say("masked") if masked else say("open", future=show.fixed(future[0], 4)),
        }
    )
