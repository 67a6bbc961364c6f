"""Steering: the difference between two texts in the stream, added while the model writes. Some seconds."""

from __future__ import annotations

import sys

import torch

import cutaway
from cutaway.tracing.edit import add

LAYER, STRENGTH = 16, 1.0


def main(name: str = "smollm2") -> None:
    model = cutaway.load(name)
    tap = f"blocks.{min(LAYER, len(model.model.blocks) // 2)}.resid_post"

    def last_state(text: str) -> torch.Tensor:
        with cutaway.record(model.model, tap) as run:
            model(torch.tensor([model.encode(text)]))
        return run[tap][0, -1]

    direction = last_state("I love this, it is wonderful") - last_state("I hate this, it is terrible")
    prompt = "I went to see the film, and I thought it was"
    print("plain:  ", model.generate(prompt, max_tokens=12))
    for strength in (STRENGTH, -STRENGTH):
        with cutaway.edit(model.model, {tap: add(direction, strength)}) as report:
            print(f"{strength:+.0f} times:", model.generate(prompt, max_tokens=12))
        print(report)


if __name__ == "__main__":
    main(*sys.argv[1:])
