"""Lab `encoder-decoder`: two stacks and the attention between them, on a translator made by hand (`toy_translator`).

State: `source` a list of 2 to 4 English words (article, adjectives, noun); `written` 0 to 6, how many Spanish words are
already there; `remove` a list of encoder.attn, encoder.ffn, decoder.attn, decoder.mask, decoder.cross, decoder.ffn;
`both_ways` whether the encoder's words see to both sides; for the diagram's counts `d_model`, `d_ff`, `layers` (in each
stack), `vocab_size`, shared by both sides and by the head.

Result: `source_words` [S] with the end sign; `translation` and `translation_without` the words written greedily (at
most 6) with every part and as asked; `target` [T] the words so far, <s> first; `encoder_pattern` [S, S],
`decoder_pattern` [T, T], `cross_pattern` [T, S]; `row` [S] the last row of the cross pattern; `probabilities` of the
next word and `top` [[word, probability] five]; `looks_at` the source word with the largest weight in `row`; `shapes`
[[name, shape]]; `diagram` [{`id`,
`stack` (encoder, decoder, out), `title`, `from` [ids], `parameters`}] from bottom to top, one block of each stack, and
`parameters` of the whole original: `encoder_block`, `decoder_block`, `decoder_only_block`, `embedding`, `total`;
`taught` and `taught_without`, the probability of
each word of the right translation when all of it is given at once, as in training;
`legal` the removable parts;
`numbers` translation, next, looks_at, total, decoder_block, encoder_block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.lab.labs.toy_translator import MEANINGS, PARTS, SOURCE, TARGET, decode, encode
from cutaway.reference.functions import Array, softmax

DEFAULT: dict[str, Any] = {
    "source": ["the", "red", "house"], "written": 2, "remove": [], "both_ways": True,
    "d_model": 512, "d_ff": 2048, "layers": 6, "vocab_size": 37000,
}  # fmt: skip
MOST = 6
WORDS = tuple(word for word in SOURCE if word != "</s>")
NODES = (
    ("source", "encoder", ()),
    ("encoder.embedding", "encoder", ("source",)),
    ("encoder.attn", "encoder", ("encoder.embedding",)),
    ("encoder.norm1", "encoder", ("encoder.embedding", "encoder.attn")),
    ("encoder.ffn", "encoder", ("encoder.norm1",)),
    ("encoder.norm2", "encoder", ("encoder.norm1", "encoder.ffn")),
    ("target", "decoder", ()),
    ("decoder.embedding", "decoder", ("target",)),
    ("decoder.attn", "decoder", ("decoder.embedding",)),
    ("decoder.norm1", "decoder", ("decoder.embedding", "decoder.attn")),
    ("decoder.cross", "decoder", ("decoder.norm1", "encoder.norm2")),
    ("decoder.norm2", "decoder", ("decoder.norm1", "decoder.cross")),
    ("decoder.ffn", "decoder", ("decoder.norm2",)),
    ("decoder.norm3", "decoder", ("decoder.norm2", "decoder.ffn")),
    ("head", "out", ("decoder.norm3",)),
    ("softmax", "out", ("head",)),
)


def run(state: dict, say: Say) -> dict:
    """The phrase through both stacks, at one moment of the writing."""
    values = State("encoder-decoder", DEFAULT, state)
    source, removed = _source(values), frozenset(values.choices("remove", PARTS))
    ids = np.array([SOURCE.index(word) for word in source])
    both_ways = values.flag("both_ways")
    encoded = encode(ids, removed, both_ways)
    translation = _translate(encode(ids)["memory"], frozenset())
    without = _translate(encoded["memory"], removed)
    target = ["<s>", *without[: values.whole("written", 0, MOST)]]
    decoded = decode(np.array([TARGET.index(word) for word in target]), encoded["memory"], removed)
    probabilities, row = softmax(decoded["logits"][-1]), decoded["cross.pattern"][-1]
    result: dict[str, Any] = {
        "source_words": source, "translation": translation, "translation_without": without, "target": target,
        "encoder_pattern": encoded["encoder.pattern"], "decoder_pattern": decoded["decoder.pattern"],
        "cross_pattern": decoded["cross.pattern"], "row": row, "probabilities": probabilities,
        "top": _top(probabilities), "looks_at": source[int(np.argmax(row))],
        "shapes": _shapes(len(source), len(target), say),
        "legal": PARTS,
        "taught": _taught(translation, encode(ids)["memory"], frozenset()),
        "taught_without": _taught(translation, encoded["memory"], removed),
        **_original(values, say),
    }  # fmt: skip
    word, probability = result["top"][0]
    numbers = {
        "translation": " ".join(without),
        "next": f"{word} {show.fixed(probability)}",
        "looks_at": f"{result['looks_at']} {show.fixed(row.max())}",
        "total": f"{result['parameters']['total']:,}",
        "encoder_block": f"{result['parameters']['encoder_block']:,}",
        "decoder_block": f"{result['parameters']['decoder_block']:,}",
    }
    source_said, target_said = " ".join(source[:-1]), " ".join(target)
    text = say("seen", source=source_said, target=target_said, **numbers)
    return show.plain(result | {"numbers": numbers, "text": text})


def _translate(memory: Array, removed: frozenset[str]) -> list[str]:
    """The likeliest word again and again, until the end sign or six words."""
    ids = [0]
    while len(ids) <= MOST:
        ids.append(int(np.argmax(decode(np.array(ids), memory, removed)["logits"][-1])))
        if TARGET[ids[-1]] == "</s>":
            break
    return [TARGET[i] for i in ids[1:]]


def _taught(translation: list[str], memory: Array, removed: frozenset[str]) -> list[float]:
    """As in training: the whole right translation is given at once; the probability of each of its words."""
    ids = np.array([TARGET.index(word) for word in translation])
    logits = decode(np.array([0, *ids[:-1]]), memory, removed)["logits"]
    return softmax(logits)[np.arange(len(ids)), ids].tolist()


def _top(probabilities: Array) -> list[list[Any]]:
    order = np.argsort(-probabilities, kind="stable")[:5]
    return [[TARGET[i], float(probabilities[i])] for i in order]


def _shapes(source: int, target: int, say: Say) -> list[list[str]]:
    sizes = {
        "encoder": show.shape((source, source)), "decoder": show.shape((target, target)),
        "cross": show.shape((target, source)), "memory": f"({source}, d_model)", "stream": f"({target}, d_model)",
    }  # fmt: skip
    return [[say(f"shape.{name}"), size] for name, size in sizes.items()]


def _original(values: State, say: Say) -> dict[str, Any]:
    """One block of each stack and the counts of the whole, attention without biases, the networks with them."""
    width, hidden = values.whole("d_model", 8, 16384), values.whole("d_ff", 8, 65536)
    layers, vocabulary = values.whole("layers", 1, 96), values.whole("vocab_size", 2, 1_000_000)
    counts = {"attn": 4 * width**2, "ffn": 2 * width * hidden + hidden + width, "norm": 2 * width}
    counts |= {"embedding": vocabulary * width, "cross": 4 * width**2}
    diagram = [
        {
            "id": id,
            "stack": stack,
            "title": say(f"node.{id.rstrip('123')}"),
            "from": list(reads),
            "parameters": _count(id, counts),
        }
        for id, stack, reads in NODES
    ]
    encoder_block = counts["attn"] + counts["ffn"] + 2 * counts["norm"]
    decoder_block = encoder_block + counts["cross"] + counts["norm"]
    parameters = {
        "encoder_block": encoder_block, "decoder_block": decoder_block, "decoder_only_block": encoder_block,
        "embedding": counts["embedding"], "total": counts["embedding"] + layers * (encoder_block + decoder_block),
    }  # fmt: skip
    return {"diagram": diagram, "parameters": parameters}


def _count(id: str, counts: dict[str, int]) -> int:
    """A node's own parameters; the table is counted where the source enters, as all three places share it."""
    if id == "decoder.embedding":
        return 0
    part = id.rpartition(".")[2].rstrip("123")
    return counts.get(part, 0)


def _source(values: State) -> list[str]:
    source = values.values["source"]
    legal = f"an article, up to two different adjectives and a noun, of {', '.join(WORDS)}"
    if not isinstance(source, list) or not 2 <= len(source) <= 4 or any(word not in WORDS for word in source):
        raise values.refuse("source", legal)
    kinds = [MEANINGS[word] for word in source]
    if kinds != ["article", *["adjective"] * (len(source) - 2), "noun"] or len(set(source)) != len(source):
        raise values.refuse("source", legal)
    return [*source, "</s>"]
