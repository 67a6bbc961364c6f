"""A mixture of experts: a router picks a few feed-forward networks for each token."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts.feedforward import Dense, Gated
from cutaway.parts.linear import Linear
from cutaway.parts.slots import LayerCache
from cutaway.parts.step import Step
from cutaway.tap import tap


class Router(nn.Module):
    """Which `n_active` experts each token takes, and their weights; `spec.Router` has the rules. Ties: lower index."""

    def __init__(self, part: spec.MixtureOfExperts, d_model: int) -> None:
        super().__init__()
        self.rule, self.n_active = part.router, part.n_active
        self.weight = nn.Parameter(torch.empty(part.n_experts, d_model))
        self.bias = nn.Parameter(torch.empty(part.n_experts)) if part.router.bias else None
        self.choice_bias = nn.Parameter(torch.zeros(part.n_experts)) if part.router.choice_bias else None

    def forward(self, x: Float[Tensor, "M D"]) -> tuple[Float[Tensor, "M E"], Float[Tensor, "M A"], Int[Tensor, "M A"]]:
        """Probabilities of all experts, weights of the chosen, and which they are."""
        wide = x if x.dtype == torch.float64 else x.float()
        bias = None if self.bias is None else self.bias.to(wide.dtype)
        logits = tap(self, "logits", nn.functional.linear(wide, self.weight.to(wide.dtype), bias))
        scores = logits.sigmoid() if self.rule.score == "sigmoid" else logits.softmax(-1)
        chosen = self._choose(logits if self.rule.score == "softmax_after" else scores)
        weights = scores.gather(-1, chosen)
        if self.rule.score == "softmax_after":
            weights = logits.gather(-1, chosen).softmax(-1)
        elif self.rule.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return scores, tap(self, "weights", weights * self.rule.factor), chosen

    def _choose(self, scores: Tensor) -> Tensor:
        ranked = scores if self.choice_bias is None else scores + self.choice_bias.to(scores.dtype)
        ranked = tap(self, "ranked", ranked)
        if self.rule.n_groups > 1:
            groups = ranked.unflatten(-1, (self.rule.n_groups, -1))  # M groups E/groups
            best = groups.amax(-1) if self.rule.group_score == "max" else groups.topk(2, -1).values.sum(-1)
            out = torch.ones_like(best, dtype=torch.bool).scatter(-1, _first(best, self.rule.n_active_groups), False)
            ranked = groups.masked_fill(out[..., None], -torch.inf).flatten(-2)
        return _first(ranked, self.n_active)


class MixtureOfExperts(nn.Module):
    """sum of weight * expert(x) over a token's chosen experts, and the shared expert where there is one.

    (Shazeer et al. 2017, arXiv:1701.06538.) With `step.aux` the load-balance loss joins it, times its factor.
    """

    def __init__(
        self, part: spec.MixtureOfExperts, d_model: int, experts: list[Dense | Gated], shared: Dense | Gated | None
    ) -> None:
        super().__init__()
        self.load_balance = part.load_balance
        self.router = Router(part, d_model)
        self.experts = nn.ModuleList(experts)
        self.shared = shared
        gated = isinstance(part.shared, spec.SharedExpert) and part.shared.gated
        self.shared_gate = Linear(d_model, 1, bias=False) if gated else None

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        rows = x.flatten(0, 1)  # M D
        scores, weights, chosen = self.router(rows)
        routed = torch.zeros_like(rows)
        for expert, mine, weight in self._assigned(weights.to(x.dtype), chosen):
            routed.index_add_(0, mine, expert(rows[mine], step, cache) * weight[:, None])
        out = routed.view_as(x) if self.shared is None else routed.view_as(x) + self._shared(x, step, cache)
        if step.aux is not None and self.load_balance:
            step.aux.append(self.load_balance * load_balance_loss(scores, chosen, step.query.owners.flatten() >= 0))
        return out

    def _assigned(self, weights: Tensor, chosen: Tensor) -> Iterator[tuple[nn.Module, Tensor, Tensor]]:
        """Each expert with the rows that chose it and their weights; compiled code must not look at how many those are.

        In training an expert without a row joins too: its gradient is then 0 in every process, not missing in some.
        """
        if torch.compiler.is_compiling():
            share = weights.new_zeros(len(weights), len(self.experts)).scatter(-1, chosen, weights)
            everyone = torch.arange(len(weights), device=weights.device)
            yield from ((expert, everyone, share[:, index]) for index, expert in enumerate(self.experts))
            return
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        parts = zip((order // chosen.shape[1]).split(counts), weights.flatten()[order].split(counts), strict=True)
        for expert, (mine, weight) in zip(self.experts, parts, strict=True):
            if len(mine) or self.training:
                yield expert, mine, weight

    def _shared(self, x: Tensor, step: Step, cache: LayerCache | None) -> Tensor:
        assert self.shared is not None
        out = self.shared(x, step, cache)
        return out if self.shared_gate is None else out * self.shared_gate(x).sigmoid()


def load_balance_loss(scores: Tensor, chosen: Tensor, real: Tensor) -> Tensor:
    """n_experts * sum_e(share of choices that fell on e * mean probability of e), over real tokens; 1 a choice if even.

    Scores that are no probabilities (sigmoid) are divided by their sum first. (Fedus et al. 2021, arXiv:2101.03961;
    DeepSeek-V3 2024, arXiv:2412.19437.)
    """
    scores, chosen = scores[real] / scores[real].sum(-1, keepdim=True), chosen[real]
    n_tokens = max(len(chosen), 1)  # of padding alone there is nothing to balance: 0, not 0/0
    taken = torch.nn.functional.one_hot(chosen, scores.shape[-1]).to(scores.dtype).sum((0, 1)) / n_tokens
    return scores.shape[-1] * (taken * scores.sum(0) / n_tokens).sum()


def _first(scores: Tensor, n: int) -> Tensor:
    """Indices of the n largest along the last axis, larger first; of equals the lower index first."""
    return scores.sort(stable=True, dim=-1, descending=True).indices[..., :n]
