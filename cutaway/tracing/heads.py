"""What heads do, told from where they look: one head's weights, all heads' kinds, their entropy, their product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Stack, Transformer
from cutaway.tracing.prompt import Prompt, check_one_row
from cutaway.tracing.record import record
from cutaway.tracing.stacks import check_layer, stack_of
from cutaway.tracing.tables import Grid, Table

KINDS = ("previous", "duplicate", "induction", "first")
Where = Literal["self", "cross", "encoder"]


def stack_where(model: Transformer, where: Where) -> tuple[Stack, str, str]:
    """The stack, what its taps begin with, and the attention's name in a block. Raises InputError where it has none."""
    if where == "self":
        return *stack_of(model), "attn"
    if not isinstance(model, EncoderDecoder):
        raise InputError(f"attention: the model has one stack and no {where} attention; leave that away")
    return *stack_of(model, where == "encoder"), "cross" if where == "cross" else "attn"


def attention(model: Transformer, prompt: Prompt, layer: int = 0, head: int = 0, where: Where = "self") -> Grid:
    """The weights [T S] of one head: of the stack that speaks, of an encoder, or across from decoder to encoder.

    Raises InputError for a layer or head that the model does not have.
    """
    check_one_row(prompt)
    stack, prefix, part = stack_where(model, where)
    check_layer(stack, layer)
    name = f"{prefix}blocks.{layer}.{part}.pattern"
    with torch.no_grad(), record(model, name) as run:
        prompt.run(model)
    weights = run[name][0]
    if not 0 <= head < len(weights):
        raise InputError(f"head {head}: layer {layer} has heads 0 to {len(weights) - 1}")
    queries = prompt.source_words if where == "encoder" else prompt.words
    keys = prompt.words if where == "self" else prompt.source_words
    title = (
        f"Layer {layer}, head {head}" + {"self": "", "cross": ", cross-attention", "encoder": " of the encoder"}[where]
    )
    queries, keys = (named or tuple(map(str, range(n))) for named, n in zip((queries, keys), weights[head].shape))
    return Grid(title, queries, keys, weights[head].float(), ("token", "looks at"), tops=True)


def patterns(model: Transformer, prompt: Prompt, where: Where = "self") -> Float[Tensor, "L B N T S"]:
    """The weights of every head of a stack; NaN where a layer has fewer heads than another, or none."""
    stack, prefix, part = stack_where(model, where)
    with torch.no_grad(), record(model, f"{prefix}blocks.*.{part}.pattern") as run:
        prompt.run(model)
    found = {name: run[name].float() for name in run.names}
    rows, _, queries, keys = next(iter(found.values())).shape
    most = max(x.shape[1] for x in found.values())
    out = torch.full((len(stack.blocks), rows, most, queries, keys), torch.nan)
    for layer in range(len(out)):
        if (x := found.get(f"{prefix}blocks.{layer}.{part}.pattern")) is not None:
            out[layer, :, : x.shape[1]] = x
    return out


@dataclass(frozen=True)
class HeadScores:
    """The mean weight that each head [L N] puts where its kind would look; `drawn` says on what."""

    scores: dict[str, Float[Tensor, "L N"]]
    drawn: str = ""

    def top(self, kind: str, n: int = 10) -> list[tuple[int, int]]:
        """The n heads (layer, head) that score highest, highest first."""
        scores = self.scores[kind]
        order = scores.nan_to_num(-1.0).flatten().argsort(descending=True, stable=True)
        return [divmod(int(i), scores.shape[1]) for i in order[: min(n, int((~scores.isnan()).sum()))]]

    def table(self, n: int = 5) -> Table:
        """The n strongest heads of each kind; its picture is that of all heads."""
        rows = [
            (kind, f"layer {layer} head {head}", float(self.scores[kind][layer, head]))
            for kind in self.scores for layer, head in self.top(kind, n)
        ]  # fmt: skip
        grids = tuple(
            by_head(f"{kind.capitalize()}: weight on {WORDS[kind]}", weights) for kind, weights in self.scores.items()
        )
        return Table("Heads by what they look at", ("kind", "head", "weight"), rows, self.drawn, (2,), grids=grids)


WORDS = {"previous": "the previous token", "duplicate": "the same token before", "induction": "what followed it before",
         "first": "the first token"}  # fmt: skip


def head_scores(model: Transformer, n_tokens: int = 48, n_rows: int = 4, seed: int = 0) -> HeadScores:
    """Scores on random tokens said twice: in the second half a copying head looks at what followed the first copy.

    For a query t of the second half of [a_1 .. a_n a_1 .. a_n]: `previous` is t-1, `duplicate` the same token before
    (t-n), `induction` the one after that (t-n+1), `first` column 0. An encoder-decoder's are those of its decoder,
    whose encoder reads other random tokens. Where the model's context is shorter than 2 n, n is half of it.
    (Olsson et al. 2022, arXiv:2209.11895.)
    """
    side, _ = stack_of(model)
    if not side.vocab_size:
        raise InputError(
            "heads: the model reads images, and no tokens that could be said twice; ask of one `attention`"
        )
    longest = side.context_length
    n = n_tokens if longest == "unlimited" else min(n_tokens, longest // 2)
    if n < 2:
        raise InputError(f"heads: {n} tokens said twice are too few; the model's context is {longest}")
    generator = torch.Generator().manual_seed(seed)
    device = side.embedding.table.weight.device
    half = torch.randint(side.vocab_size, (n_rows, n), generator=generator).to(device)
    source = None
    if isinstance(model, EncoderDecoder):
        source = torch.randint(model.encoder.vocab_size, (n_rows, n), generator=generator).to(device)
    weights = patterns(model, Prompt(torch.cat((half, half), 1), source)).mean(1)  # L N T S
    query = torch.arange(n + 1, 2 * n)
    key = {"previous": query - 1, "duplicate": query - n, "induction": query - n + 1, "first": 0 * query}
    scores = {kind: weights[:, :, query, key[kind]].mean(-1) for kind in KINDS}
    return HeadScores(scores, f"mean weight on {n_rows} rows of {n} random tokens said twice, seed {seed}")


def by_head(title: str, values: Float[Tensor, "L N"], note: str = "") -> Grid:
    """Numbers of heads as a heat map."""
    layers, heads = (tuple(map(str, range(n))) for n in values.shape)
    return Grid(title, layers, heads, values, note=note)


def entropy(weights: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    """-sum p log p in nats of each query's weights: 0 where it looks at one key, log n where at n alike."""
    return torch.special.entr(weights).sum(-1)


def rollout(weights: Float[Tensor, "L B N T S"]) -> Float[Tensor, "B T S"]:
    """Product over layers of (mean over heads + I) / 2: how much of each input token reaches each output.

    A layer without heads (NaN) passes all on.
    (Abnar and Zuidema 2020, arXiv:2005.00928.)
    """
    straight = torch.eye(weights.shape[-1])
    means = weights.nanmean(2)
    each = (torch.where(means.isnan(), straight, means) + straight) / 2
    whole = each[0]
    for layer in each[1:]:
        whole = layer @ whole
    return whole
