"""What each part is for: take it out, and see the loss on a text and the next token. Some seconds."""

from __future__ import annotations

import sys

import torch

import cutaway
from cutaway.tracing.lens import next_token_losses

TEXT = "The sun rises in the east and sets in the"
PARTS = ("blocks.1.ffn", "blocks.0.attn", "scale", "positions", "mask", "final_norm")


def main(name: str = "smollm2") -> None:
    model = cutaway.load(name)
    prompt = model.prompt(TEXT)
    for part in ("nothing", *PARTS):
        left = model.model if part == "nothing" else cutaway.remove(model.model, part)
        with torch.no_grad():
            token = int(prompt.run(left)[0, -1].argmax())
        loss = float(next_token_losses(left, prompt).mean())
        print(f"without {part:14} {loss:7.3f} nats a token, next {model.decode([token])!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
