"""What heads do, told from where they look: the previous token, an earlier copy, what followed it, the first token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.tracing.lens import stack_of
from cutaway.tracing.record import record
from cutaway.tracing.tables import Table

KINDS = ("previous", "duplicate", "induction", "first")


def patterns(model: nn.Module, ids: Int[Tensor, "B T"]) -> Float[Tensor, "L B N T S"]:
    """The weights of every head of the stack that the head reads; raises InputError where layers differ in heads."""
    side, prefix = stack_of(model)
    with torch.no_grad(), record(model, f"{prefix}blocks.*.attn.pattern") as run:
        model(ids)
    found = [run[name] for name in run.names]
    if len({x.shape for x in found}) != 1:
        raise InputError("heads: the layers have unequal numbers of heads; read `blocks.*.attn.pattern` by `record`")
    return torch.stack(found).float()


@dataclass(frozen=True)
class HeadScores:
    """The mean weight that each head [L N] puts where its kind would look."""

    scores: dict[str, Float[Tensor, "L N"]]

    def top(self, kind: str, n: int = 10) -> list[tuple[int, int]]:
        """The n heads (layer, head) that score highest, highest first."""
        flat = self.scores[kind].flatten()
        width = self.scores[kind].shape[1]
        return [divmod(int(i), width) for i in flat.argsort(descending=True)[:n]]

    def table(self, n: int = 5) -> Table:
        """The n strongest heads of each kind."""
        rows = [
            (kind, f"layer {layer} head {head}", float(self.scores[kind][layer, head]))
            for kind in self.scores for layer, head in self.top(kind, n)
        ]  # fmt: skip
        return Table("Heads by what they look at", ("kind", "head", "weight"), rows, heat=(2,))


def head_scores(model: nn.Module, n_tokens: int = 48, n_rows: int = 4, seed: int = 0) -> HeadScores:
    """Scores on random tokens said twice: in the second half a copying head looks at what followed the first copy.

    For a query t of the second half of [a_1 .. a_n a_1 .. a_n]: `previous` is t-1, `duplicate` the same token before
    (t-n), `induction` the one after that (t-n+1), `first` column 0. (Olsson et al. 2022, arXiv:2209.11895.)
    """
    side, _ = stack_of(model)
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(side.vocab_size, (n_rows, n_tokens), generator=generator)
    weights = patterns(model, torch.cat((half, half), 1)).mean(1)  # L N T S
    query = torch.arange(n_tokens + 1, 2 * n_tokens)
    key = {"previous": query - 1, "duplicate": query - n_tokens, "induction": query - n_tokens + 1, "first": 0 * query}
    return HeadScores({kind: weights[:, :, query, key[kind]].mean(-1) for kind in KINDS})


def entropy(weights: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    """-sum p log p in nats of each query's weights: 0 where it looks at one key, log n where at n alike."""
    return torch.special.entr(weights).sum(-1)


def rollout(weights: Float[Tensor, "L B N T S"]) -> Float[Tensor, "B T S"]:
    """Product over layers of (mean over heads + I) / 2: how much of each input token reaches each output.

    (Abnar and Zuidema 2020, arXiv:2005.00928.)
    """
    each = (weights.mean(2) + torch.eye(weights.shape[-1])) / 2
    whole = each[0]
    for layer in each[1:]:
        whole = layer @ whole
    return whole


def copy_accuracy(model: nn.Module, ids: Int[Tensor, "B T"]) -> float:
    """The share of tokens of the second half that the model finds likeliest: ids are random tokens said twice."""
    n = ids.shape[1] // 2
    with torch.no_grad():
        guesses = model(ids)[:, n:-1].argmax(-1)
    return float((guesses == ids[:, n + 1 :]).float().mean())
