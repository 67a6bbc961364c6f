"""Two types of numbers: where does bfloat16 part ways with float32, and which layer rounds most? Half a minute."""

from __future__ import annotations

import sys

import torch

import cutaway
from cutaway.tracing.compare import compare
from cutaway.tracing.numerics import cast, errors, watch


def main(name: str = "smollm2", text: str = "The capital of France is") -> None:
    model = cutaway.load(name)
    prompt = model.prompt(text)
    half = cast(torch.bfloat16)(model.model)
    print("float32 and bfloat16:", compare(model.model, half, prompt, tolerance=0.02))

    found = errors(model.model, prompt)
    alone = found.alone["bfloat16"].nan_to_num(0.0)
    print(f"the block that rounds most by itself is {found.depths[int(alone.argmax())]}: {alone.max():.2%}")
    print(f"error of the logits: {found.whole['bfloat16'][-1]:.2%}")

    with torch.no_grad(), watch(half) as seen:
        prompt.run(half)
    widest = max(seen.ranges.values(), key=lambda each: each.largest)
    print(f"{seen}; the largest number is {widest.largest:.0f}, in {widest.name}: float16 holds 65504")


if __name__ == "__main__":
    main(*sys.argv[1:])
