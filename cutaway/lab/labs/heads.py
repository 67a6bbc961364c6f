"""Lab `heads`: four heads with hand-made jobs, and what happens when fewer heads have to share them.

State: `words` a list of 2 to 8 of the lab's words; `n_heads` 1, 2, 4 or 8 (they share the width of 8); `head` the
one that is looked at (below n_heads); `row` the word whose weights are read (below the number of words); `masked`
whether words see only backwards; `remove` a list of heads whose output is set to 0.

Every word has 8 numbers: its kind (noun, verb, pronoun, other) and two clock hands that turn with its position. The
query and key matrices are made by hand, so that with 4 heads each has one job: `previous` looks one word back, `noun`
lets a pronoun look for nouns, `kind` looks for words of its own kind, `first` looks at the beginning.

Result: `words`, `kinds` [L], `x` [L, 8], `n_heads`, `head_dim`, `jobs` [n_heads] (the jobs that fall to each head),
`patterns` [n_heads, L, L], `pattern` [L, L] of the picked head, `row`, `weights` [L] of that row, `sharpest` [n_heads]
the largest weight a head gives on average, `z` [n_heads, L, head_dim], `output` [L, 8], `output_without` [L, 8] with
heads removed, `difference` (largest), `visible` [L, L], `shapes` [[name, shape]], `parameters` (4 width^2, whatever
the number of heads); `numbers` weights, looks_at, head_dim, parameters, difference.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.attention import attend, join_heads, split_heads
from cutaway.reference.functions import Array
from cutaway.reference.masks import causal, full

KINDS = ("noun", "verb", "pronoun", "other")
WORDS = {
    "the": "other", "cat": "noun", "dog": "noun", "mat": "noun", "sat": "verb", "slept": "verb", "was": "verb",
    "it": "pronoun", "she": "pronoun", "because": "other", "tired": "other", "on": "other",
}  # fmt: skip
DEFAULT: dict[str, Any] = {
    "words": ["the", "cat", "slept", "because", "it", "was", "tired"],
    "n_heads": 4, "head": 1, "row": 4, "masked": False, "remove": [],
}  # fmt: skip
WIDTH = 8
JOBS = ("previous", "noun", "kind", "first")
STEP = math.pi / 4  # radians a position: the hand is round once in 8 words
SHARP = 14.0


def run(state: dict, say: Say) -> dict:
    """softmax(q k^T / sqrt(head_dim)) v for each head, with the same matrices however they are shared."""
    values = State("heads", DEFAULT, state)
    words = _words(values)
    n_heads = _n_heads(values)
    head, row = values.whole("head", 0, n_heads - 1), values.whole("row", 0, len(words) - 1)
    removed = _removed(values, n_heads)
    places = np.arange(len(words))
    visible = (causal if values.flag("masked") else full)(places[:, None], places)
    x = _vectors(words)
    q, k = _queries_and_keys(x)
    z, patterns = attend(split_heads(q, n_heads), split_heads(k, n_heads), split_heads(x, n_heads), visible)
    kept = np.array([each not in removed for each in range(n_heads)])[:, None, None]
    output, without = join_heads(z), join_heads(z * kept)
    weights = patterns[head, row]
    result = {
        "words": words, "kinds": [WORDS[word] for word in words], "x": x, "n_heads": n_heads,
        "head_dim": WIDTH // n_heads, "jobs": _jobs(n_heads, say), "patterns": patterns, "pattern": patterns[head],
        "row": row, "weights": weights, "sharpest": patterns.max(-1).mean(-1), "z": z, "output": output,
        "output_without": without, "difference": float(np.abs(output - without).max()), "visible": visible,
        "shapes": _shapes(len(words), n_heads, say), "parameters": 4 * WIDTH**2,
    }  # fmt: skip
    numbers = {
        "weights": show.vector(weights),
        "looks_at": words[int(np.argmax(weights))],
        "head_dim": str(WIDTH // n_heads),
        "parameters": str(4 * WIDTH**2),
        "difference": show.fixed(result["difference"]),
    }
    jobs = say.list(result["jobs"][head])
    text = say("seen", head=head, n_heads=n_heads, jobs=jobs, word=words[row], **numbers)
    return show.plain(result | {"numbers": numbers, "text": text})


def _vectors(words: list[str]) -> Array:
    """Kind as one of four, then two hands that turn with the position at full and at half speed."""
    kinds = np.array([[float(WORDS[word] == kind) for kind in KINDS] for word in words])
    angles = np.arange(len(words))[:, None] * np.array([STEP, STEP / 2])
    hands = np.stack([np.cos(angles), np.sin(angles)], -1).reshape(len(words), 4)
    return np.concatenate([kinds, hands], -1)


def _queries_and_keys(x: Array) -> tuple[Array, Array]:
    """x W_q and x W_k [L, 8]: two columns for each job."""
    q, k = np.zeros_like(x), np.zeros_like(x)
    turn = np.array([[math.cos(STEP), -math.sin(STEP)], [math.sin(STEP), math.cos(STEP)]])
    q[:, 0:2], k[:, 0:2] = SHARP * x[:, 4:6] @ turn, x[:, 4:6]  # the hand turned back by one position
    q[:, 2], k[:, 2] = SHARP * x[:, 2], x[:, 0]  # a pronoun asks, nouns answer
    q[:, 4], k[:, 4] = SHARP * (x[:, 0] - x[:, 1]), x[:, 0] - x[:, 1]  # noun against verb
    q[:, 5], k[:, 5] = SHARP * (x[:, 2] - x[:, 3]), x[:, 2] - x[:, 3]  # pronoun against other
    q[:, 6], k[:, 6] = SHARP, x[:, 6]  # everyone asks for the slow hand's start
    return q, k


def _jobs(n_heads: int, say: Say) -> list[list[str]]:
    names = [say(f"job.{job}") for job in JOBS]
    if n_heads == 8:
        return [[say("half", job=name, half=half)] for name in names for half in (1, 2)]
    share = len(names) // n_heads
    return [names[start : start + share] for start in range(0, len(names), share)]


def _shapes(length: int, n_heads: int, say: Say) -> list[list[str]]:
    head_dim = WIDTH // n_heads
    return [
        ["x", show.shape((length, WIDTH))],
        ["q, k, v", show.shape((n_heads, length, head_dim))],
        [say("weights"), show.shape((n_heads, length, length))],
        [say("joined"), show.shape((length, WIDTH))],
    ]


def _n_heads(values: State) -> int:
    if values.values["n_heads"] not in (1, 2, 4, 8) or isinstance(values.values["n_heads"], bool):
        raise values.refuse("n_heads", "1, 2, 4 or 8: the width of 8 is shared equally")
    return int(values.values["n_heads"])


def _words(values: State) -> list[str]:
    words = values.values["words"]
    if not isinstance(words, list) or not 2 <= len(words) <= 8 or any(word not in list(WORDS) for word in words):
        raise values.refuse("words", f"a list of 2 to 8 of {', '.join(WORDS)}")
    return words


def _removed(values: State, n_heads: int) -> list[int]:
    removed = values.values["remove"]
    if not isinstance(removed, list) or any(type(head) is not int or not 0 <= head < n_heads for head in removed):
        raise values.refuse("remove", f"a list of heads from 0 to {n_heads - 1}")
    return removed
