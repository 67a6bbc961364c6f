"""An encoder-decoder learns to reverse: 8 random ids in, the same ids backwards out. Half a minute on one core."""

from __future__ import annotations

import torch

import cutaway
from cutaway.training.loss import cross_entropy

N, IDS, START = 8, 16, 0


def rows(n: int, seed: int) -> torch.Tensor:
    return torch.randint(1, IDS, (n, N), generator=torch.Generator().manual_seed(seed))


def accuracy(model: torch.nn.Module) -> float:
    held_out = rows(200, seed=-1)  # of 15^8
    written = cutaway.generate(model, held_out, cutaway.spec.Generation(max_tokens=N, start_id=START)).ids
    return (torch.tensor(written) == held_out.flip(1)).float().mean().item()


def main() -> None:
    torch.set_num_threads(1)  # a model this small gains nothing by more
    model = cutaway.build(cutaway.preset("original-2017-tiny"), seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for step in range(1001):
        if step % 100 == 0:
            print(f"step {step}: {accuracy(model):.1%} right")
        source = rows(32, seed=step)
        target = source.flip(1)
        begun = torch.cat((torch.full((len(source), 1), START), target[:, :-1]), 1)  # what each place has before it
        logits = model(begun, cutaway.Given(memory=model.encode(source)))
        optimizer.zero_grad()
        cross_entropy(logits, target, smoothing=0.1).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
