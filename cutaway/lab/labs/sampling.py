"""Lab `sampling`: from logits to the next token, one step after the other; and beam search on a small tree.

State: `logits` 8 numbers from -10 to 10; `temperature` 0 to 4, `top_k` 0 to 8 (0: all), `top_p` 0.01 to 1, `min_p` 0 to
1, `repetition` 1 to 4, `presence` 0 to 4; `seen` a list of words already written; `seed`, `draws` 1 to 2000; `beams` 1
to 4 for the tree.

Result: `words` [8]; `stages` a list of {`name`, `probabilities` [8], `kept` [8]} in the order in which they act:
model, penalties, temperature, top-k, top-p, min-p (the last is what is drawn from); `probabilities` [8] of the last;
`greedy` the word a greedy choice takes; `counts` [8] of the draws, `drawn` the first twelve words drawn; `entropy` in
bits and `choices` (2 to the entropy) before and after; `tree`: `beams`, `paths` [{`words`, `probability`, `kept`}] of
both steps, `found` the path that the search returns, `greedy` the path of one beam, `best` the likeliest of all;
`numbers` top, kept, choices, found, best.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.attention import entropy
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array
from cutaway.reference.sampling import Sampling, distribution, draw, ranks

WORDS = ("mat", "sofa", "floor", "roof", "chair", "moon", "bus", "idea")
LOGITS = [3.0, 2.5, 2.0, 1.2, 1.0, -0.5, -1.0, -2.0]
STAGES = ("model", "penalties", "temperature", "top-k", "top-p", "min-p")
# After the first word, the words that may follow it and their probabilities: greed is punished here.
TREE = {
    "a": (0.5, {"red": 0.3, "big": 0.3, "dog": 0.2, "cat": 0.2}),
    "the": (0.4, {"dog": 0.9, "cat": 0.05, "red": 0.03, "big": 0.02}),
    "no": (0.1, {"one": 0.6, "dog": 0.2, "cat": 0.1, "red": 0.1}),
}
DEFAULT: dict[str, Any] = {
    "logits": LOGITS, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0, "presence": 0.0,
    "seen": [], "seed": 0, "draws": 200, "beams": 1,
}  # fmt: skip


def run(state: dict, say: Say) -> dict:
    """The reference's order: penalties, temperature, top-k, top-p, min-p, draw."""
    values = State("sampling", DEFAULT, state)
    logits = values.array("logits", (8,), 10)
    seen = [WORDS.index(word) for word in values.choices("seen", WORDS)]
    stages = [
        {"name": say(f"stage.{name}"), "probabilities": each, "kept": each > 0}
        for name, each in zip(STAGES, _distributions(logits, _settings(values), seen), strict=True)
    ]
    last = stages[-1]["probabilities"]
    rng = np.random.default_rng(values.whole("seed", 0, 2**32 - 1))
    drawn = [draw(last, uniform) for uniform in rng.random(values.whole("draws", 1, 2000))]
    before, after = (float(entropy(stages[i]["probabilities"])) for i in (0, -1))
    tree = _tree(values.whole("beams", 1, 4))
    result = {
        "words": WORDS, "stages": stages, "probabilities": last, "greedy": WORDS[int(np.argmin(ranks(logits)))],
        "counts": np.bincount(drawn, minlength=8), "drawn": [WORDS[i] for i in drawn[:12]],
        "entropy": {"before": before, "after": after}, "choices": {"before": 2**before, "after": 2**after},
        "tree": tree,
    }  # fmt: skip
    top, kept = int(np.argmax(last)), int((last > 0).sum())
    numbers = {
        "top": f"{WORDS[top]} {show.fixed(last[top], 3)}",
        "kept": str(kept),
        "choices": show.fixed(2**after),
        "found": f"{' '.join(tree['found'])} {show.fixed(_probability(tree['found']))}",
        "best": f"{' '.join(tree['best'])} {show.fixed(_probability(tree['best']))}",
    }
    return show.plain(result | {"numbers": numbers, "text": say("seen", before=show.fixed(2**before), **numbers)})


def _settings(values: State) -> dict[str, Any]:
    return {
        "repetition_penalty": values.number("repetition", 1, 4),
        "presence_penalty": values.number("presence", 0, 4),
        "temperature": values.number("temperature", 0, 4),
        "top_k": values.whole("top_k", 0, 8),
        "top_p": values.number("top_p", 0.01, 1),
        "min_p": values.number("min_p", 0, 1),
    }


def _distributions(logits: Array, settings: dict[str, Any], seen: list[int]) -> list[Array]:
    """After no setting, after the two penalties, and after each further one."""
    names = list(settings)
    steps = [0, 2, 3, 4, 5, 6]
    return [distribution(logits, Sampling(**{name: settings[name] for name in names[:n]}), seen) for n in steps]


def _probability(path: list[str]) -> float:
    first, rest = TREE[path[0]]
    return first * (rest[path[1]] if len(path) > 1 else 1.0)


def _tree(beams: int) -> dict[str, Any]:
    """Two steps: keep the best few beginnings, then the best of what continues them."""
    starts = sorted(TREE, key=lambda word: -TREE[word][0])
    ends = [[start, word] for start in starts for word in TREE[start][1]]
    opened = [path for path in ends if path[0] in starts[:beams]]
    kept = sorted(opened, key=lambda path: -_probability(path))[:beams]
    greedy = max((path for path in ends if path[0] == starts[0]), key=_probability)
    paths = [{"words": [start], "probability": TREE[start][0], "kept": start in starts[:beams]} for start in starts]
    paths += [{"words": path, "probability": _probability(path), "kept": path in kept} for path in ends]
    best = max(ends, key=_probability)
    return {"beams": beams, "paths": paths, "found": kept[0], "greedy": greedy, "best": best}
