"""An encoder learns a mirror: of each id in `ids separator ids-reversed` and its twin one is masked. Half a minute."""

from __future__ import annotations

import torch

import cutaway
from cutaway.training.loss import IGNORED, cross_entropy

N, IDS, SEPARATOR, MASK = 8, 16, 0, 255


def rows(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, IDS, (n, N), generator=generator)
    whole = torch.cat((ids, torch.full((n, 1), SEPARATOR), ids.flip(1)), 1)
    left = torch.rand(n, N, generator=generator) < 0.5
    masked = torch.cat((left, torch.zeros(n, 1, dtype=torch.bool), ~left.flip(1)), 1)
    return whole.masked_fill(masked, MASK), whole.masked_fill(~masked, IGNORED)


def accuracy(model: torch.nn.Module) -> float:
    held_out, targets = rows(200, seed=-1)  # of 15^8
    with torch.no_grad():
        filled = model.eval()(held_out).argmax(-1)
    return (filled == targets)[targets != IGNORED].float().mean().item()


def main() -> None:
    torch.set_num_threads(1)  # a model this small gains nothing by more
    model = cutaway.build(cutaway.preset("bert-tiny"), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    for step in range(801):
        if step % 100 == 0:
            print(f"step {step}: {accuracy(model):.1%} right")
        batch, targets = rows(64, seed=step)
        optimizer.zero_grad()
        cross_entropy(model.train()(batch), targets).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
