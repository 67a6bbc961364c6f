"""`cutaway eval`: how well a model predicts a text."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from cutaway.cli.models import load_model
from cutaway.cli.output import print_json
from cutaway.errors import InputError


def show_eval(name: str, file: str, as_json: bool) -> None:
    """Loss in nats a token, perplexity, bits a byte; windows of the model's context, each read afresh."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}); give a UTF-8 file") from None
    loaded = load_model(name)
    ids = loaded.encode(text)
    limit = loaded.spec.context_length
    width = min(len(ids), 2048 if limit == "unlimited" else limit, 2048)
    if len(ids) < 2:
        raise InputError(f"{path}: {len(ids)} tokens; at least 2 are needed to predict one")
    total, scored = 0.0, 0
    for start in range(0, len(ids), width):
        window = torch.tensor([ids[start : start + width]])
        if window.shape[1] > 1:
            shares = loaded(window)[0, :-1].double().log_softmax(-1)
            total -= float(shares.gather(-1, window[0, 1:, None]).sum())
            scored += window.shape[1] - 1
    loss = total / scored
    result = {"tokens": len(ids), "scored": scored, "loss": loss, "perplexity": math.exp(loss),
              "bits_per_byte": total / math.log(2) / len(text.encode())}  # fmt: skip
    if as_json:
        print_json(result)
    else:
        print(f"{scored:,} of {len(ids):,} tokens scored, windows of {width}")
        print(f"loss {loss:.4f} nats a token, perplexity {result['perplexity']:.3f}, "
              f"{result['bits_per_byte']:.4f} bits a byte")  # fmt: skip
