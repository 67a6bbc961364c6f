"""A translator with two stacks, made by hand: English noun phrases to Spanish ones.

Spanish puts the adjective behind the noun, and article and adjective follow the noun's gender, which in English stands
to their right. So the encoder must look in both directions (its attention brings every word the gender of the noun),
its feed-forward network turns meaning and gender into a Spanish form, and the decoder's cross-attention fetches these
forms in Spanish order; the decoder's own attention knows what is already written. Norms are left out: they serve
training, and this model is not trained.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cutaway.reference.attention import attend
from cutaway.reference.functions import Array, linear, relu
from cutaway.reference.masks import causal, full

KINDS = ("article", "noun", "adjective", "end")
MEANINGS = {
    "the": "article", "a": "article", "car": "noun", "dog": "noun", "house": "noun", "table": "noun",
    "red": "adjective", "white": "adjective", "</s>": "end",
}  # fmt: skip
SOURCE = tuple(MEANINGS)
GENDER = {"car": 0, "dog": 0, "house": 1, "table": 1}
FORMS = {
    "the": ("el", "la"), "a": ("un", "una"), "car": ("coche",) * 2, "dog": ("perro",) * 2, "house": ("casa",) * 2,
    "table": ("mesa",) * 2, "red": ("rojo", "roja"), "white": ("blanco", "blanca"), "</s>": ("</s>",) * 2,
}  # fmt: skip
TARGET = ("<s>", *dict.fromkeys(form for pair in FORMS.values() for form in pair))
PARTS = ("encoder.attn", "encoder.ffn", "decoder.attn", "decoder.mask", "decoder.cross", "decoder.ffn")
N_KINDS, N_MEANINGS, N_FORMS = len(KINDS), len(SOURCE), len(TARGET)
# What may come after each kind in Spanish, and how much it is wanted; <s> stands before everything.
NEXT = {
    "<s>": {"article": 1.0},
    "article": {"noun": 1.0},
    "noun": {"adjective": 1.0, "end": 0.5},
    "adjective": {"adjective": 1.0, "end": 0.5},
    "end": {"end": 1.0},
}
WANTED, WRITTEN = 8.0, 30.0


def encode(ids: Array, without: frozenset[str] = frozenset(), both_ways: bool = True) -> dict[str, Array]:
    """The encoder's tensors for source ids [S]: kinds, meanings, gender and forms side by side in a stream [S, 30]."""
    found, w = {}, weights()
    x = found["encoder.embedding"] = w["source_embedding"][ids]
    places = np.arange(len(ids))
    visible = (full if both_ways else causal)(places[:, None], places)
    update, found["encoder.pattern"] = _attend(x, x, "encoder.attn", visible)
    x = found["encoder.resid_mid"] = x + update * ("encoder.attn" not in without)
    found["memory"] = x + _network(x, "encoder.ffn") * ("encoder.ffn" not in without)
    return found


def decode(ids: Array, memory: Array, without: frozenset[str] = frozenset()) -> dict[str, Array]:
    """The decoder's tensors for what is written so far [T]: three sublayers, then logits [T, forms]."""
    found, w = {}, weights()
    x = found["decoder.embedding"] = w["target_embedding"][ids]
    places = np.arange(len(ids))
    visible = (full if "decoder.mask" in without else causal)(places[:, None], places)
    update, found["decoder.pattern"] = _attend(x, x, "decoder.attn", visible)
    x = found["decoder.0"] = x + update * ("decoder.attn" not in without)
    update, found["cross.pattern"] = _attend(x, memory, "decoder.cross", True)
    x = found["decoder.1"] = x + update * ("decoder.cross" not in without)
    x = found["decoder.2"] = x + _network(x, "decoder.ffn") * ("decoder.ffn" not in without)
    found["logits"] = linear(x, w["head"])
    return found


def _attend(x: Array, memory: Array, name: str, visible) -> tuple[Array, Array]:
    w = weights()
    q, k, v = linear(x, w[f"{name}.q"]), linear(memory, w[f"{name}.k"]), linear(memory, w[f"{name}.v"])
    z, pattern = attend(q, k, v, visible, scale=1.0)
    return linear(z, w[f"{name}.o"]), pattern


def _network(x: Array, name: str) -> Array:
    w = weights()
    return linear(relu(linear(x, w[f"{name}.up"], w[f"{name}.bias"])), w[f"{name}.down"])


@cache
def weights() -> dict[str, Array]:
    """All matrices [out, in] by name. Slots of the source's streams: kind 4, meaning 9, gender 2, form 15; of the
    target's: kind 5 (<s> first), meaning 9, written 9, form 15."""
    return _tables() | _encoder() | _decoder()


S_KIND, S_MEANING, S_GENDER, S_FORM = 0, N_KINDS, N_KINDS + N_MEANINGS, N_KINDS + N_MEANINGS + 2
S_WIDTH = S_FORM + N_FORMS
T_KIND, T_MEANING, T_WRITTEN = 0, N_KINDS + 1, N_KINDS + 1 + N_MEANINGS
T_FORM = T_WRITTEN + N_MEANINGS
T_WIDTH = T_FORM + N_FORMS


def _set(shape: tuple[int, int], entries: list[tuple[int, int, float]]) -> Array:
    matrix = np.zeros(shape)
    for row, column, value in entries:
        matrix[row, column] += value
    return matrix


def _tables() -> dict[str, Array]:
    source, target = [], []
    for i, (word, kind) in enumerate(MEANINGS.items()):
        source += [(i, S_KIND + KINDS.index(kind), 1.0), (i, S_MEANING + i, 1.0)]
        for form in set(FORMS[word]):
            row = TARGET.index(form)
            target += [(row, T_KIND + 1 + KINDS.index(kind), 1.0), (row, T_MEANING + i, 1.0)]
    return {
        "source_embedding": _set((N_MEANINGS, S_WIDTH), source),
        "target_embedding": _set((N_FORMS, T_WIDTH), [*target, (0, T_KIND, 1.0)]),
    }


def _encoder() -> dict[str, Array]:
    up, bias, down = [], [], []
    for i, word in enumerate(SOURCE):
        for gender, form in enumerate(FORMS[word]):
            unit = 2 * i + gender
            # The feminine needs meaning and gender; the masculine is what is said when nothing speaks for the other.
            up += [(unit, S_MEANING + i, 1.0), (unit, S_GENDER + 1, 1.0 if gender else -1.0)]
            bias.append(-1.0 if gender else 0.0)
            down.append((S_FORM + TARGET.index(form), unit, 1.0))
    noun, everyone = KINDS.index("noun"), [(0, S_KIND + i, 1.0) for i in range(N_KINDS)]
    genders = [(g, S_MEANING + SOURCE.index(word), 1.0) for word, g in GENDER.items()]
    return {
        "encoder.attn.q": 10 * _set((1, S_WIDTH), everyone),
        "encoder.attn.k": _set((1, S_WIDTH), [(0, S_KIND + noun, 1.0)]),
        "encoder.attn.v": _set((2, S_WIDTH), genders),
        "encoder.attn.o": _set((S_WIDTH, 2), [(S_GENDER + g, g, 1.0) for g in range(2)]),
        "encoder.ffn.up": _set((2 * N_MEANINGS, S_WIDTH), up),
        "encoder.ffn.bias": np.array(bias),
        "encoder.ffn.down": _set((S_WIDTH, 2 * N_MEANINGS), down),
    }


def _decoder() -> dict[str, Array]:
    wants = [
        (KINDS.index(kind), T_KIND + (0 if after == "<s>" else 1 + KINDS.index(after)), WANTED * much)
        for after, kinds in NEXT.items()
        for kind, much in kinds.items()
    ]
    avoids = [(N_KINDS + i, T_WRITTEN + i, -WRITTEN) for i in range(N_MEANINGS)]
    both = N_KINDS + N_MEANINGS
    return {
        "decoder.attn.q": np.zeros((1, T_WIDTH)),  # no preference: an average over all that is written
        "decoder.attn.k": np.zeros((1, T_WIDTH)),
        "decoder.attn.v": _set((N_MEANINGS, T_WIDTH), [(i, T_MEANING + i, 1.0) for i in range(N_MEANINGS)]),
        "decoder.attn.o": _set((T_WIDTH, N_MEANINGS), [(T_WRITTEN + i, i, 1.0) for i in range(N_MEANINGS)]),
        "decoder.cross.q": _set((both, T_WIDTH), wants + avoids),
        "decoder.cross.k": _set((both, S_WIDTH), [(i, i, 1.0) for i in range(both)]),
        "decoder.cross.v": _set((N_FORMS, S_WIDTH), [(i, S_FORM + i, 1.0) for i in range(N_FORMS)]),
        "decoder.cross.o": _set((T_WIDTH, N_FORMS), [(T_FORM + i, i, 1.0) for i in range(N_FORMS)]),
        "decoder.ffn.up": _set((N_FORMS, T_WIDTH), [(i, T_FORM + i, 1.0) for i in range(N_FORMS)]),
        "decoder.ffn.bias": np.full(N_FORMS, -0.5),  # a form with more than half of the weight is made louder
        "decoder.ffn.down": _set((T_WIDTH, N_FORMS), [(T_FORM + i, i, 2.0) for i in range(N_FORMS)]),
        "head": 5 * _set((N_FORMS, T_WIDTH), [(i, T_FORM + i, 1.0) for i in range(N_FORMS)]),
    }
