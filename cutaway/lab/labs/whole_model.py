"""Lab `whole-model`: from words to the next word through a whole decoder-only model, made by hand (see `toy_model`).

State: `text` a list of 1 to 12 of the model's words; `remove` a list of parts (positions, mask, blocks.0.attn,
blocks.0.ffn, blocks.1.attn, blocks.1.ffn, final_norm); `position` the token whose prediction is read (-1: the last);
`write` 0 to 12 words to continue greedily.

Result: `vocabulary` [12]; `ids` [T]; `flow` [{`name`, `shape`, `what`}] from ids to probabilities; `tensors` [{`name`,
`shape`, `rms`, `rms_without`, `difference`, `changed`}] with and without the removed parts; `first` the first that
changes, or null; `patterns` {`blocks.0`, `blocks.1`} [T, T] as run (parts removed); `lens` [{`depth`, `probabilities`
[12], `top`}] at the chosen position after the embedding, block 0, block 1; `probabilities` and `probabilities_without`
[12] there; `top` and `top_without` [[word, probability] five]; `losses` and `losses_without` [T-1] in nats of each next
word of the text, `loss`, `loss_without` their means (null for one word); `continued` and `continued_without` the words
written; `parameters` [[part, number]] and `total`; `legal` the removable parts; `numbers` next, next_without, loss,
loss_without, parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.lab.labs.toy_model import D_MODEL, PARTS, WORDS, forward, lens, weights
from cutaway.reference.functions import Array, softmax
from cutaway.reference.loss import token_losses

DEFAULT: dict[str, Any] = {"text": ["the", "cat", "sat", "on", "the"], "remove": [], "position": -1, "write": 4}
FLOW = (
    "ids", "embedding", "resid_pre", "blocks.0.resid_mid", "blocks.0.resid_post", "blocks.1.resid_mid",
    "blocks.1.resid_post", "final_norm", "logits", "probabilities",
)  # fmt: skip
DEPTHS = {"embedding": "resid_pre", "block_0": "blocks.0.resid_post", "block_1": "blocks.1.resid_post"}


def run(state: dict, say: Say) -> dict:
    """The text through the model whole and with the parts removed."""
    values = State("whole-model", DEFAULT, state)
    ids = np.array([WORDS.index(word) for word in _text(values)])
    removed = frozenset(values.choices("remove", PARTS))
    position = values.whole("position", -1, len(ids) - 1) % len(ids)
    whole, run_ = forward(ids), forward(ids, removed)
    before, after = (softmax(each["logits"][position]) for each in (whole, run_))
    losses, losses_without = _losses(whole["logits"], ids), _losses(run_["logits"], ids)
    steps = values.whole("write", 0, 12)
    tensors = [_compared(name, whole[name], run_[name]) for name in whole]
    result = {
        "vocabulary": WORDS, "ids": ids, "flow": _flow(len(ids), say), "tensors": tensors,
        "first": next((each for each in tensors if each["changed"]), None),
        "patterns": {block: run_[f"{block}.attn.pattern"] for block in ("blocks.0", "blocks.1")},
        "lens": [_looked(say(f"depth.{depth}"), run_[name][position]) for depth, name in DEPTHS.items()],
        "probabilities": before, "probabilities_without": after, "top": _top(before), "top_without": _top(after),
        "losses": losses, "losses_without": losses_without, "loss": _mean(losses),
        "loss_without": _mean(losses_without),
        "continued": _write(ids, frozenset(), steps), "continued_without": _write(ids, removed, steps),
        "parameters": _parameters(), "total": sum(count for _, count in _parameters()), "legal": PARTS,
    }  # fmt: skip
    return show.plain(result | {"numbers": _numbers(result), "text": _sentence(say, values, result, removed)})


def _losses(logits: Array, ids: Array) -> Array:
    return token_losses(logits[:-1], ids[1:])


def _mean(losses: Array) -> float | None:
    return float(losses.mean()) if losses.size else None


def _top(probabilities: Array) -> list[list[Any]]:
    order = np.argsort(-probabilities, kind="stable")[:5]
    return [[WORDS[i], float(probabilities[i])] for i in order]


def _looked(depth: str, stream: Array) -> dict[str, Any]:
    probabilities = softmax(lens(stream))
    return {"depth": depth, "probabilities": probabilities, "top": WORDS[int(np.argmax(probabilities))]}


def _write(ids: Array, removed: frozenset[str], steps: int) -> list[str]:
    """The likeliest next word, appended, again and again."""
    for _ in range(steps):
        ids = np.append(ids, int(np.argmax(forward(ids, removed)["logits"][-1])))
    return [WORDS[i] for i in ids[len(ids) - steps :]]


def _compared(name: str, one: Array, other: Array) -> dict[str, Any]:
    difference = float(np.abs(one - other).max())
    size, size_without = (float(np.sqrt((each**2).mean())) for each in (one, other))
    return {
        "name": name, "shape": show.shape((1, *one.shape)), "rms": size, "rms_without": size_without,
        "difference": difference, "changed": difference > 1e-12,
    }  # fmt: skip


def _flow(length: int, say: Say) -> list[dict[str, str]]:
    widths = {"ids": (1, length), "logits": (1, length, len(WORDS)), "probabilities": (1, length, len(WORDS))}
    return [
        {"name": name, "shape": show.shape(widths.get(name, (1, length, D_MODEL))), "what": say(f"what.{name}")}
        for name in FLOW
    ]


def _parameters() -> list[list[Any]]:
    counts: dict[str, int] = {}
    for name, matrix in weights().items():
        part = name.rpartition(".")[0] or name
        counts[part] = counts.get(part, 0) + matrix.size
    return [[part, count] for part, count in counts.items()]


def _numbers(result: dict[str, Any]) -> dict[str, str]:
    def of(key: str) -> str:
        word, probability = result[key][0]
        return f"{word} {show.fixed(probability)}"

    def loss(key: str) -> str:
        return "-" if result[key] is None else show.fixed(result[key], 3)

    return {
        "next": of("top"), "next_without": of("top_without"), "loss": loss("loss"),
        "loss_without": loss("loss_without"), "parameters": f"{result['total']:,}",
    }  # fmt: skip


def _sentence(say: Say, values: State, result: dict[str, Any], removed: frozenset[str]) -> str:
    numbers, text = _numbers(result), " ".join(values.values["text"])
    if not removed:
        return say("whole", words=text, continued=" ".join(result["continued"]), **numbers)
    first = result["first"]["name"] if result["first"] else say("nothing")
    return say("removed", words=text, names=say.list(sorted(removed)), first=first, **numbers)


def _text(values: State) -> list[str]:
    text = values.values["text"]
    if not isinstance(text, list) or not 1 <= len(text) <= 12 or any(word not in WORDS for word in text):
        raise values.refuse("text", f"a list of 1 to 12 of {', '.join(WORDS)}")
    return text
