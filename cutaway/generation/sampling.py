"""From logits to the next id. Order: suppressed ids, penalties, temperature, top-k, top-p, min-p, draw."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway import spec


def choose(
    logits: Float[Tensor, "B V"], seen: list[list[int]], options: spec.Generation, generators: list[torch.Generator]
) -> Int[Tensor, " B"]:
    """The next id of each row; temperature 0 takes the largest logit, of equals the lowest id.

    `seen` are a row's ids so far, prompt included: they are what the penalties act on (CTRL 2019, arXiv:1909.05858).
    """
    logits = adjusted(logits, seen, options)
    if options.temperature == 0:
        return logits.argmax(-1)
    shares = kept_shares(logits, options)
    drawn = [torch.multinomial(row, 1, generator=g) for row, g in zip(shares, generators, strict=True)]
    return torch.cat(drawn)


def adjusted(logits: Tensor, seen: list[list[int]], options: spec.Generation) -> Tensor:
    """Suppressed ids at -inf; seen ids divided by the repetition penalty where positive, multiplied where negative."""
    if options.suppressed_ids:
        logits = logits.index_fill(-1, torch.tensor(options.suppressed_ids), -torch.inf)
    if options.repetition_penalty == 1.0 and options.presence_penalty == 0.0:
        return logits
    out = logits.clone()
    for row, ids in enumerate(seen):
        own = torch.tensor(sorted(set(ids)))
        old = out[row, own]
        scaled = torch.where(old > 0, old / options.repetition_penalty, old * options.repetition_penalty)
        out[row, own] = scaled - options.presence_penalty
    return out


def kept_shares(logits: Float[Tensor, "B V"], options: spec.Generation) -> Float[Tensor, "B V"]:
    """Probabilities after temperature, with what top-k, top-p and min-p drop at 0; never empty.

    top-p keeps the smallest set whose mass reaches p, the crossing token included (arXiv:1904.09751); min-p drops what
    is below min_p times the largest (arXiv:2407.01082).
    """
    wide = logits.double()
    shares = ((wide - wide.amax(-1, keepdim=True)) / options.temperature).softmax(-1)
    ranked, order = shares.sort(dim=-1, descending=True, stable=True)
    keep = torch.ones_like(ranked, dtype=torch.bool)
    if options.top_k:
        keep[:, options.top_k :] = False
        ranked = ranked.masked_fill(~keep, 0.0)
        ranked = ranked / ranked.sum(-1, keepdim=True)
    if options.top_p < 1.0:
        keep &= ranked.cumsum(-1) - ranked < options.top_p
    if options.min_p > 0.0:
        keep &= ranked >= options.min_p * ranked[:, :1]
    keep[:, 0] = True
    ranked = ranked.masked_fill(~keep, 0.0)
    return torch.zeros_like(shares).scatter(-1, order, ranked / ranked.sum(-1, keepdim=True))
