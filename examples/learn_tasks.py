"""What the models of learn.py learn: a task draws rows of ids and gives a model's logits for them, and the targets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

import cutaway

N, IDS = 8, 16  # a row has 8 random ids from 1 to 15
MARK, MASK = 0, 255  # what stands between them and their copy; what hides an id
IGNORED = -100  # a target that cross_entropy leaves out

Task = Callable[[nn.Module, int, Generator], tuple[Tensor, Tensor]]


def random_ids(n_rows: int, generator: Generator) -> Tensor:
    return torch.randint(1, IDS, (n_rows, N), generator=generator)


def copy(model: nn.Module, n_rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """A decoder goes on after `ids mark` with the same ids."""
    ids = random_ids(n_rows, generator)
    rows = torch.cat((ids, torch.full((n_rows, 1), MARK), ids), 1)
    targets = rows[:, 1:].clone()
    targets[:, :N] = IGNORED  # up to the mark, nothing foretells the next id
    return model(rows[:, :-1]), targets


def mirror(model: nn.Module, n_rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """An encoder fills in `ids mark ids-reversed`, where one of each id and its twin is hidden."""
    ids = random_ids(n_rows, generator)
    rows = torch.cat((ids, torch.full((n_rows, 1), MARK), ids.flip(1)), 1)
    left = torch.rand(n_rows, N, generator=generator) < 0.5
    hidden = torch.cat((left, torch.zeros(n_rows, 1, dtype=torch.bool), ~left.flip(1)), 1)
    return model(rows.masked_fill(hidden, MASK)), rows.masked_fill(~hidden, IGNORED)


def reverse(model: nn.Module, n_rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """An encoder reads the ids, a decoder writes them backwards."""
    source = random_ids(n_rows, generator)
    target = source.flip(1)
    begun = torch.cat((torch.full((n_rows, 1), MARK), target[:, :-1]), 1)  # at each place, the id before it
    return model(begun, cutaway.Given(memory=model.encode(source))), target


def share_right(model: nn.Module, task: Task) -> float:
    """Of 200 rows that are never learnt from, those with each id right: then greedy generation writes them too."""
    with torch.no_grad():
        logits, targets = task(model.eval(), 200, Generator().manual_seed(-1))
    right = (logits.argmax(-1) == targets) | (targets == IGNORED)
    return right.all(1).float().mean().item()


TASKS = {
    "decoder": ("modern-tiny", copy),
    "encoder": ("bert-tiny", mirror),
    "encoder-decoder": ("original-2017-tiny", reverse),
}
