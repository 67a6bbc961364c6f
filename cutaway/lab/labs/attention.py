"""Lab `attention`: queries, keys and values, the scores, the weights, and the average they make.

State: `X` [3, 2] the vectors of cat, dog, car, from -4 to 4; `wq`, `wk`, `wv` [2, 2] matrices [in, out] from -4 to 4;
`row` the query that is followed (0 to 2); `scaled` whether scores are divided by sqrt 2; `masked` whether a word sees
only itself and those before it.

Result: `words`; `X`; `q`, `k`, `v` [3, 2]; `dots` [3, 3] = q k^T; `scores` [3, 3] after the scale; `visible` [3, 3];
`weights` [3, 3], rows sum to 1; `outputs` [3, 2]; `row`; `steps` of the followed row: `dots`, `scores`, `powers` (e to
the score; null where masked), `total`, `weights`, `terms` [3, 2] (weight times value), `output`; `spread` [3], how many
words each row really averages over (2 to the entropy in bits); `hull` whether every output lies between the smallest
and largest value in each column; `numbers` scores, weights, output, spread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.attention import attend
from cutaway.reference.functions import Array
from cutaway.reference.masks import causal, full

WORDS = ("cat", "dog", "car")
IDENTITY = [[1.0, 0.0], [0.0, 1.0]]
DEFAULT: dict[str, Any] = {
    "X": [[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]],
    "wq": IDENTITY, "wk": IDENTITY, "wv": IDENTITY, "row": 0, "scaled": True, "masked": False,
}  # fmt: skip
LIMIT = 4.0


def run(state: dict, say: Say) -> dict:
    """softmax(q k^T / sqrt 2) v, every step of one row written out (arXiv:1706.03762)."""
    values = State("attention", DEFAULT, state)
    x = values.array("X", (3, 2), LIMIT)
    q, k, v = (x @ values.array(name, (2, 2), LIMIT) for name in ("wq", "wk", "wv"))
    scale = 1 / math.sqrt(2) if values.flag("scaled") else 1.0
    places = np.arange(3)
    visible = (causal if values.flag("masked") else full)(places[:, None], places)
    outputs, weights = attend(q, k, v, visible, scale)
    row = values.whole("row", 0, 2)
    result: dict[str, Any] = {
        "words": WORDS, "X": x, "q": q, "k": k, "v": v, "dots": q @ k.T, "scores": q @ k.T * scale,
        "visible": visible, "weights": weights, "outputs": outputs, "row": row,
        "spread": 2 ** entropy(weights), "hull": _inside(outputs, v),
    }  # fmt: skip
    result["steps"] = _steps(result, row)
    numbers = {
        "scores": show.vector(result["scores"][row]),
        "weights": show.vector(weights[row], 3),
        "output": show.vector(outputs[row]),
        "spread": show.fixed(result["spread"][row]),
    }
    text = say("seen", word=WORDS[row], **numbers)
    return show.plain(result | {"numbers": numbers, "text": text})


def entropy(weights: Array) -> Array:
    """-sum w log2 w of each row, in bits; a weight of 0 counts nothing."""
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    return -(weights * logs).sum(-1)


def _inside(outputs: Array, v: Array) -> bool:
    room = 1e-12
    return bool(((outputs >= v.min(0) - room) & (outputs <= v.max(0) + room)).all())


def _steps(result: dict[str, Any], row: int) -> dict[str, Any]:
    seen, scores, weights = result["visible"][row], result["scores"][row], result["weights"][row]
    powers = [math.exp(score) if see else None for score, see in zip(scores, seen, strict=True)]
    return {
        "dots": result["dots"][row], "scores": scores, "powers": powers,
        "total": sum(power for power in powers if power is not None), "weights": weights,
        "terms": weights[:, None] * result["v"], "output": result["outputs"][row],
    }  # fmt: skip
