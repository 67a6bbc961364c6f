"""The logit lens: what the model would say if it ended after each block. Some seconds."""

from __future__ import annotations

import sys

import cutaway
from cutaway.tracing.lens import logit_lens


def main(name: str = "smollm2", text: str = "The capital of France is") -> None:
    model = cutaway.load(name)
    prompt = model.prompt(text)
    lens = logit_lens(model.model, prompt)
    print(lens.table(top=3))

    answer = int(lens.log_probabilities[-1, -1].argmax())
    ranks = lens.ranks(answer).tolist()
    first = next(i for i in range(len(ranks)) if not any(ranks[i:]))
    print(f"{prompt.name(answer)!r} is the likeliest token from {lens.depths[first]} on")


if __name__ == "__main__":
    main(*sys.argv[1:])
