"""An encoder learns to reverse: in `ids separator ids-reversed` half of the ids are masked, and the mirror tells them.

Half a minute on one core.
"""

from __future__ import annotations

import torch

import cutaway
from cutaway.training.loss import IGNORED, cross_entropy

N, IDS, SEPARATOR, MASK = 8, 16, 0, 255


def rows(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """n rows in which of each id and its mirror one is masked, and what stood there as targets."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, IDS, (n, N), generator=generator)
    whole = torch.cat((ids, torch.full((n, 1), SEPARATOR), ids.flip(1)), 1)
    left = torch.rand(n, N, generator=generator) < 0.5
    masked = torch.cat((left, torch.zeros(n, 1, dtype=torch.bool), ~left.flip(1)), 1)
    return whole.masked_fill(masked, MASK), whole.masked_fill(~masked, IGNORED)


def accuracy(model: torch.nn.Module) -> float:
    """The share of masked ids that the model fills in right, on rows that it was not trained on."""
    held_out, targets = rows(200, seed=-1)
    with torch.no_grad():
        filled = model.eval()(held_out).argmax(-1)
    model.train()
    return (filled == targets)[targets != IGNORED].float().mean().item()


def main() -> None:
    torch.set_num_threads(1)  # a model this small gains nothing by more
    model = cutaway.build(cutaway.preset("bert-tiny"), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    print(f"before: {accuracy(model):.1%} right")
    for step in range(1, 801):
        batch, targets = rows(64, seed=step)
        loss = cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {accuracy(model):.1%} right")


if __name__ == "__main__":
    main()
