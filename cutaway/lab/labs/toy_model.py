"""A decoder-only model made by hand: it knows which word may follow which, and copies what followed before.

The 44 numbers of a token are four slots: which word it is (12), which word stood before it (12), what may come next
(12), and its position as sines and cosines (8). Block 0's attention looks one word back and writes what it finds into
the second slot; its feed-forward network writes the words that may follow into the third. Block 1's attention looks for
earlier places whose previous word is the current one and writes the word that stood there into the third slot (an
induction head, Olsson et al. 2022, arXiv:2209.11895); its feed-forward network forbids to say a word twice in a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np

from cutaway.reference.attention import attend
from cutaway.reference.feedforward import dense
from cutaway.reference.functions import Array, identity, linear
from cutaway.reference.masks import causal, full
from cutaway.reference.norms import rms_norm
from cutaway.reference.positions import sinusoidal

WORDS = ("the", "a", "cat", "dog", "mat", "bird", "sat", "ran", "saw", "on", "to", ".")
FOLLOWS = {
    "the": ("cat", "dog", "mat", "bird"), "a": ("cat", "dog", "mat", "bird"), "cat": ("sat", "ran", "saw"),
    "dog": ("sat", "ran", "saw"), "mat": (".",), "bird": ("sat", "ran", "saw"), "sat": ("on", "."),
    "ran": ("to", "."), "saw": ("the", "a"), "on": ("the", "a"), "to": ("the", "a"), ".": ("the", "a"),
}  # fmt: skip
PARTS = ("positions", "mask", "blocks.0.attn", "blocks.0.ffn", "blocks.1.attn", "blocks.1.ffn", "final_norm")
N = len(WORDS)
CLOCK = 8
D_MODEL = 3 * N + CLOCK
WORD, BEFORE, NEXT, PLACE = slice(0, N), slice(N, 2 * N), slice(2 * N, 3 * N), slice(3 * N, D_MODEL)
REMEMBER, COPY = (BEFORE, 0.3), (NEXT, 0.3)  # where an attention writes, and how strongly


@cache
def weights() -> Mapping[str, Array]:
    """All matrices [out, in] by name."""
    return {
        "embedding": np.eye(N, D_MODEL),
        **_attention("blocks.0.attn", _one_word_back(), _reads(PLACE), REMEMBER),
        **_network("blocks.0.ffn", {word: {other: 1.0 for other in FOLLOWS[word]} for word in WORDS}),
        **_attention("blocks.1.attn", 3 * _reads(WORD), _reads(BEFORE), COPY),
        **_network("blocks.1.ffn", {word: {word: -1.0} for word in WORDS}),
        "head": 4 * _reads(NEXT),
    }


def forward(ids: Array, without: frozenset[str] = frozenset()) -> dict[str, Array]:
    """Every tensor of a run by name, first to last; ids [T], streams [T, 44], logits [T, 12].

    A part in `without` gives 0 (attn, ffn), adds nothing (positions), hides nothing (mask) or is the identity (norm).
    """
    found, names = {}, weights()
    x = found["embedding"] = names["embedding"][ids]
    places = np.arange(len(ids))
    if "positions" not in without:
        x = x + np.pad(sinusoidal(places, CLOCK), ((0, 0), (D_MODEL - CLOCK, 0)))
    found["resid_pre"] = x
    visible = (full if "mask" in without else causal)(places[:, None], places)
    for name in ("blocks.0", "blocks.1"):
        update, found[f"{name}.attn.pattern"] = _attend(rms_norm(x), f"{name}.attn", visible)
        x = found[f"{name}.resid_mid"] = x + update * (f"{name}.attn" not in without)
        of_part = {f"{part}.weight": names[f"{name}.ffn.{part}"] for part in ("up_proj", "down_proj")}
        update = dense(rms_norm(x), of_part)
        x = found[f"{name}.resid_post"] = x + update * (f"{name}.ffn" not in without)
    found["final_norm"] = (identity if "final_norm" in without else rms_norm)(x)
    found["logits"] = linear(found["final_norm"], names["head"])
    return found


def lens(stream: Array) -> Array:
    """What the head would say of a stream in the middle: logits [T, 12]."""
    return linear(rms_norm(stream), weights()["head"])


def _attend(x: Array, name: str, visible: np.ndarray) -> tuple[Array, Array]:
    q, k, v = (linear(x, weights()[f"{name}.{part}"]) for part in ("q_proj", "k_proj", "v_proj"))
    z, pattern = attend(q, k, v, visible)
    return linear(z, weights()[f"{name}.o_proj"]), pattern


def _reads(slot: slice) -> Array:
    """A matrix that takes the slot out of a stream, filled up with zeros to 12 rows."""
    matrix = np.zeros((N, D_MODEL))
    matrix[np.arange(slot.stop - slot.start), np.arange(slot.start, slot.stop)] = 1.0
    return matrix


def _one_word_back() -> Array:
    """The query: the own position's sines and cosines turned back by one, so that they meet the previous key's."""
    matrix = np.zeros((N, D_MODEL))
    for pair in range(CLOCK // 2):
        angle = 10000.0 ** (-2 * pair / CLOCK)
        turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        matrix[2 * pair : 2 * pair + 2, PLACE.start + 2 * pair : PLACE.start + 2 * pair + 2] = turn
    return 20 * matrix


def _attention(name: str, query: Array, key: Array, output: tuple[slice, float]) -> dict[str, Array]:
    slot, factor = output
    return {
        f"{name}.q_proj": query,
        f"{name}.k_proj": key,
        f"{name}.v_proj": _reads(WORD),
        f"{name}.o_proj": factor * _reads(slot).T,
    }


def _network(name: str, says: dict[str, dict[str, float]]) -> dict[str, Array]:
    """One hidden unit a word: it is on where the word stands, and writes its opinion of every next word."""
    down = np.zeros((D_MODEL, N))
    for word, opinions in says.items():
        for other, opinion in opinions.items():
            down[NEXT.start + WORDS.index(other), WORDS.index(word)] = opinion / 3
    return {f"{name}.up_proj": _reads(WORD), f"{name}.down_proj": down}
