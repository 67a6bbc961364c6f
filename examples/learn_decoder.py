"""A decoder-only model learns to copy: 8 random ids, a separator, the same 8 ids. Some seconds on one core."""

from __future__ import annotations

import torch

import cutaway
from cutaway.training.loss import IGNORED, cross_entropy

N, IDS, SEPARATOR = 8, 32, 0


def rows(n: int, seed: int) -> torch.Tensor:
    ids = torch.randint(1, IDS, (n, N), generator=torch.Generator().manual_seed(seed))
    return torch.cat((ids, torch.full((n, 1), SEPARATOR), ids), 1)


def accuracy(model: torch.nn.Module) -> float:
    held_out = rows(200, seed=-1)  # of 31^8
    written = cutaway.generate(model, held_out[:, : N + 1], cutaway.spec.Generation(max_tokens=N)).ids
    return (torch.tensor(written) == held_out[:, N + 1 :]).float().mean().item()


def main() -> None:
    torch.set_num_threads(1)  # a model this small gains nothing by more
    model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(301):
        if step % 100 == 0:
            print(f"step {step}: {accuracy(model):.1%} right")
        batch = rows(32, seed=step)
        targets = batch[:, 1:].clone()
        targets[:, :N] = IGNORED  # the ids before the separator are random: nothing foretells them
        optimizer.zero_grad()
        cross_entropy(model(batch[:, :-1]), targets).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
