"""Induction heads copy: without the ten strongest, text that was said before is no longer repeated. Half a minute."""

from __future__ import annotations

import sys

import torch

import cutaway
from cutaway.tracing.edit import knock_out
from cutaway.tracing.heads import head_scores

N_HEADS, N_TOKENS = 10, 24


def copied(model: torch.nn.Module, twice: torch.Tensor) -> float:
    """The share of tokens of the second half that the model finds likeliest: ids [B T] are random tokens said twice."""
    n = twice.shape[1] // 2
    with torch.no_grad():
        guesses = model(twice)[:, n:-1].argmax(-1)
    return float((guesses == twice[:, n + 1 :]).float().mean())


def main(name: str = "smollm2") -> None:
    model = cutaway.load(name).model
    scores = head_scores(model, n_tokens=N_TOKENS, n_rows=2)
    top = scores.top("induction", N_HEADS)
    print(scores.table(3))

    generator = torch.Generator().manual_seed(1)
    half = torch.randint(model.spec.vocab_size, (4, N_TOKENS), generator=generator)
    twice = torch.cat((half, half), 1)
    every = [(i, j) for i, layer in enumerate(scores.scores["induction"]) for j in range(len(layer))]
    rest = [head for head in every if head not in top]
    drawn = [rest[i] for i in torch.randperm(len(rest), generator=generator)[:N_HEADS]]

    print(f"all heads:             {copied(model, twice):.0%} copied")
    for label, heads in (("without induction", top), ("without random heads", drawn)):
        with cutaway.edit(model, knock_out(heads=heads)):
            print(f"{label + ':':22} {copied(model, twice):.0%} copied")


if __name__ == "__main__":
    main(*sys.argv[1:])
