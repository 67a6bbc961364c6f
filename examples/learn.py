"""In half a minute a model learns to copy or reverse: `python examples/learn.py decoder|encoder|encoder-decoder`."""

from __future__ import annotations

import sys

import torch
from learn_tasks import TASKS, share_right

import cutaway


def main(kind: str = "decoder") -> None:
    torch.set_num_threads(1)  # a model this small gains nothing by more
    torch.manual_seed(0)  # dropout draws from here
    preset, task = TASKS[kind]
    model = cutaway.build(cutaway.preset(preset), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(801):
        if step % 100 == 0:
            print(f"step {step}: {share_right(model, task):.1%} of new rows right")
        logits, targets = task(model.train(), 64, torch.Generator().manual_seed(step))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
