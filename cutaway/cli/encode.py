"""`cutaway run` on a model that writes no text: guesses for masked tokens, classes, or a vector."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.cli.output import print_filled, print_json, print_table
from cutaway.errors import InputError
from cutaway.loaded import Loaded

SHOWN = 8
"""Numbers of a vector that a person sees."""


def show_reading(loaded: Loaded, text: str, as_json: bool, more: dict[str, Any]) -> None:
    """What the model's head makes of a text, and, as JSON, `more` beside it."""
    result = reading(loaded, text)
    if as_json:
        print_json({"model": loaded.spec.name, "text": text} | result | more)
    elif "masks" in result:
        rows = [
            (f"{number}", each["token"], _share(each["probability"]))
            for number, guesses in enumerate(result["masks"], 1)
            for each in guesses
        ]
        print_table(("mask", "token", "probability"), rows, left=(0, 1))
    elif "tokens" in result:
        rows = [(each["token"], each["label"], _share(each["probability"])) for each in result["tokens"]]
        print_table(("token", "class", "probability"), rows, left=(0, 1))
    elif "classes" in result:
        what = "value" if result["problem"] == "regression" else "probability"
        print_table(("class", what), [(each["label"], _share(each["probability"])) for each in result["classes"]])
    else:
        vector = result["vector"]
        print_filled(f"{len(vector)} numbers, length {result['length']:.4f}")
        print_filled(", ".join(f"{x:.4f}" for x in vector[:SHOWN]) + ", ..." * (len(vector) > SHOWN))


def reading(loaded: Loaded, text: str) -> dict[str, Any]:
    """The same as plain data: `masks`, `tokens`, `classes` or a `vector`."""
    head = loaded.spec.head
    match head:
        case spec.MaskedHead():
            return {"masks": [_named(guesses) for guesses in _guesses(loaded, text)]}
        case spec.ClassHead(pool="none"):
            found = loaded.classify_tokens(text)
            return {"tokens": [{"token": token, "label": label, "probability": p} for token, label, p in found]}
        case spec.ClassHead():
            found = [{"label": label, "probability": share} for label, share in loaded.classify(text)]
            return {"problem": head.problem, "classes": found}
    vector = loaded.embed(text)
    return {"vector": vector.tolist(), "length": float(vector.norm())}


def _guesses(loaded: Loaded, text: str) -> list[list[tuple[str, float]]]:
    tokenizer = loaded.tokenizer
    if tokenizer is not None and "mask" in tokenizer.special:
        mask = tokenizer.token(tokenizer.special["mask"])
        if mask not in text:
            raise InputError(f"the text has no {mask}; write it where a token is to be guessed")
    return loaded.fill_mask(text)


def _named(guesses: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"token": token, "probability": share} for token, share in guesses]


def _share(x: float) -> str:
    return f"{x:.4f}"
