"""From a text to its next token, one public step at a time: `python -m cutaway.tour`. docs/tour.md reads along.

Each function below does one step and prints the shape of what it made. Nothing is hidden: the last step shows that the
model itself, asked at once, says the same.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

import cutaway
from cutaway.generation.sampling import argmax, distribution, draw
from cutaway.parts.step import Step

TEXT = "The capital of France is"


def tour(model: cutaway.Loaded, text: str) -> int:
    """All steps in their order; returns the next token's id."""
    ids = tokenize(model, text)
    step = begin(model, ids)
    x = embed(model, step)
    look_inside(model, ids)
    x = pass_blocks(model, x, step)
    logits = read_out(model, x, step)
    token = choose(model, logits)
    check(model, text, ids, logits, token)
    return token


def tokenize(model: cutaway.Loaded, text: str) -> Tensor:
    """Text to ids: the tokenizer cuts the text into pieces that it has a number for."""
    title(1, "text to ids")
    ids = model.tokenizer.encode(text)
    for i in ids:
        print(f"  {i:6}  {model.tokenizer.decode([i])!r}")
    ids = torch.tensor([ids])
    shape("ids", ids, "one row of tokens")
    return ids


def begin(model: cutaway.Loaded, ids: Tensor) -> Step:
    """What every layer needs to know about these tokens: where they stand, and who may look at whom."""
    title(2, "positions")
    step = model.model.begin(ids, cutaway.Given(), cache=None)
    shape("positions", step.positions, f"{step.positions[0].tolist()}: where each token stands")
    return step


def embed(model: cutaway.Loaded, step: Step) -> Tensor:
    """Ids to vectors: a row of the table for each id."""
    title(3, "ids to vectors")
    embedding = model.model.embedding
    shape("table", embedding.table.weight, "a row for each token of the vocabulary")
    x = embedding(step.ids, step)
    shape("x", x, "the stream: a vector a token")
    return x


def look_inside(model: cutaway.Loaded, ids: Tensor) -> None:
    """One block opened: every tensor in it has a name, and `listening` hears it."""
    title(4, "inside the first block")
    notes = {
        "attn.in": "the stream, normalised",
        "attn.q": "queries: what each token looks for, a head each",
        "attn.k": "keys: what each token offers, fewer heads",
        "attn.v": "values: what it hands over",
        "attn.q_rot": "queries turned by their position (RoPE)",
        "attn.scores": "query times key; -inf where a key is in the future",
        "attn.pattern": "softmax of the scores: each row sums to 1",
        "attn.z": "values mixed by the pattern",
        "attn.update": "heads joined: what attention adds to the stream",
        "ffn.pre": "what goes into the gate",
        "ffn.hidden": "SiLU(gate) times value",
        "ffn.update": "what the feed-forward network adds",
    }
    heard: dict[str, Tensor] = {}
    with torch.no_grad(), cutaway.listening(model.model, lambda name, x: heard.update({name: x}), "blocks.0.*"):
        model.model(ids)
    for name, note in notes.items():
        shape(name, heard[f"blocks.0.{name}"], note)
    print("\n  who looks at whom, head 0 (rows: the token that looks)")
    for i, row in zip(ids[0].tolist(), heard["blocks.0.attn.pattern"][0, 0], strict=True):
        print(f"  {model.tokenizer.decode([i])!r:12}" + "".join(f"{100 * float(share):5.0f}%" for share in row))


def pass_blocks(model: cutaway.Loaded, x: Tensor, step: Step) -> Tensor:
    """The stream goes through all blocks; each adds to it and keeps its shape."""
    blocks = model.model.blocks
    title(5, f"{len(blocks)} blocks")
    with torch.no_grad():
        for index, block in enumerate(blocks):
            x = block(x, step, cache=None)
            if index in (0, len(blocks) // 3, 2 * len(blocks) // 3, len(blocks) - 1):
                guess = model.model.head(model.model.final_norm(x), step)[0, -1].argmax()
                word = model.tokenizer.decode([int(guess)])
                shape(f"x after {index + 1}", x, f"read out here, the next token would be {word!r}")
    return x


def read_out(model: cutaway.Loaded, x: Tensor, step: Step) -> Tensor:
    """Vectors to logits: the last token's vector against every row of the table."""
    title(6, "vectors to logits")
    with torch.no_grad():
        h = model.model.final_norm(x)
        shape("h", h, "normalised once more")
        logits = model.model.head(h, step)
    shape("logits", logits, "a number for each token of the vocabulary")
    return logits[:, -1]


def choose(model: cutaway.Loaded, logits: Tensor) -> int:
    """Logits to a token: the likeliest one, or a draw."""
    title(7, "logits to a token")
    likeliest = logits[0].softmax(-1).topk(5)
    for share, i in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True):
        print(f"  {100 * share:5.1f}%  {model.tokenizer.decode([i])!r}")
    token = int(argmax(logits)[0])
    print(f"  greedy takes {model.tokenizer.decode([token])!r}")
    probabilities, kept = distribution(logits, cutaway.spec.Generation(temperature=1.0, top_p=0.9))
    assert kept is not None  # top-p leaves some out, and says which are kept
    numbers = torch.rand(6, generator=torch.Generator().manual_seed(0))
    drawn = [kept[0, draw(probabilities, number[None])] for number in numbers]
    print(f"  top_p 0.9 keeps {int((probabilities > 0).sum())} tokens; six draws from them give")
    print("  " + ", ".join(repr(model.tokenizer.decode(each.tolist())) for each in drawn))
    return token


def check(model: cutaway.Loaded, text: str, ids: Tensor, logits: Tensor, token: int) -> None:
    """The model asked at once says the same."""
    title(8, "the same at once")
    whole = model(ids)[:, -1]
    assert (whole - logits).abs().max() < 1e-4
    print("  model(ids) gives these logits in one call")
    word = model.generate(text, max_tokens=1, temperature=0.0)
    assert word == model.tokenizer.decode([token])
    print(f"  model.generate({text!r}) gives {word!r}")


def title(number: int, words: str) -> None:
    print(f"{'' if number == 1 else chr(10)}{number}. {words}")


def shape(name: str, value: Any, note: str) -> None:
    print(f"  {name:12} {' x '.join(map(str, value.shape)):16} {note}")


if __name__ == "__main__":
    tour(cutaway.load("smollm2"), " ".join(sys.argv[1:]) or TEXT)
