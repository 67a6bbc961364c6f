"""The feed-forward network: two matrices, a gated three, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutaway.reference.attention import project
from cutaway.reference.functions import ACTIVATIONS, Array, linear, real, sigmoid, softmax

Weights = Mapping[str, Array]


def dense(x: ArrayLike, weights: Weights, activation: str = "relu") -> Array:
    """down(activation(up(x))) (arXiv:1706.03762). x [..., D], hidden [..., F] -> [..., D]."""
    return project(ACTIVATIONS[activation](project(x, weights, "up_proj")), weights, "down_proj")


@dataclass(frozen=True)
class Gate:
    """How a gated network treats gate and up: hold both within `clamp`, sharpen SiLU by `alpha`, shift up."""

    activation: str = "silu"
    clamp: float | None = None
    alpha: float = 1.0
    up_offset: float = 0.0


def gate_value(gate: ArrayLike, how: Gate = Gate()) -> Array:
    """activation(gate), the factor that up is multiplied by; `removed` is 1, and silu is gate * sigmoid(alpha gate)."""
    gate = real(gate) if how.clamp is None else np.minimum(real(gate), how.clamp)
    if how.activation == "removed":
        return np.ones_like(gate)
    if how.activation == "silu":
        return gate * sigmoid(how.alpha * gate)
    return ACTIVATIONS[how.activation](gate)


def gated(x: ArrayLike, weights: Weights, how: Gate = Gate()) -> Array:
    """down(activation(gate(x)) * (up(x) + offset)), SwiGLU with silu (arXiv:2002.05202).

    With a clamp c first gate <= c and -c <= up <= c, as gpt-oss has it. x [..., D] -> [..., D].
    """
    up = project(x, weights, "up_proj")
    up = up if how.clamp is None else np.clip(up, -how.clamp, how.clamp)
    hidden = gate_value(project(x, weights, "gate_proj"), how) * (up + how.up_offset)
    return project(hidden, weights, "down_proj")


@dataclass(frozen=True)
class Router:
    """How a token's experts are chosen and weighed; see `route`."""

    n_active: int
    score: str = "softmax"
    normalise: bool = True
    factor: float = 1.0
    n_groups: int = 1
    n_active_groups: int = 1
    group_score: str = "max"


def largest(x: ArrayLike, k: int) -> np.ndarray:
    """True at the k largest numbers of each row, the lower index first where equal. x [..., E] -> [..., E]."""
    x = real(x)
    rank = np.argsort(np.argsort(-x, axis=-1, kind="stable"), axis=-1, kind="stable")
    return rank < k


def scores(logits: ArrayLike, router: Router) -> Array:
    """What experts are ranked by: the softmax over all, each one's sigmoid, or (softmax_after) the logits."""
    return {"softmax": softmax, "sigmoid": sigmoid, "softmax_after": real}[router.score](real(logits))


def choose(ranked: ArrayLike, router: Router, choice_bias: ArrayLike | None = None) -> np.ndarray:
    """Which experts a token takes: the best n_active, of the best groups alone. ranked: scores [..., E] -> [..., E].

    choice_bias [E] helps to choose and does not weigh (DeepSeek-V3, arXiv:2412.19437).
    """
    ranked = real(ranked) if choice_bias is None else real(ranked) + real(choice_bias)
    return largest(np.where(open_groups(ranked, router), ranked, -np.inf), router.n_active)


def route(logits: ArrayLike, router: Router, choice_bias: ArrayLike | None = None) -> Array:
    """The weight of every expert for every token, 0 where it is not chosen. logits [..., E] -> [..., E].

    A chosen expert weighs its score; with softmax_after the softmax over the chosen logits alone.
    normalise: weights divided by their sum; factor last.
    """
    logits, each = real(logits), scores(logits, router)
    chosen = choose(each, router, choice_bias)
    if router.score == "softmax_after":
        return softmax(np.where(chosen, logits, -np.inf)) * router.factor
    weights = np.where(chosen, each, 0.0)
    if router.normalise:
        total = weights.sum(-1, keepdims=True)
        weights = weights / np.where(total > 0, total, 1.0)
    return weights * router.factor


def open_groups(ranked: Array, router: Router) -> np.ndarray:
    """Which experts stand in the best groups, a group's score its best expert's or the sum of its best two's."""
    n = router.n_groups
    grouped = ranked.reshape(*ranked.shape[:-1], n, ranked.shape[-1] // n)
    best = np.sort(grouped, axis=-1)[..., -2 if router.group_score == "top2" else -1 :].sum(-1)
    open_ = largest(best, router.n_active_groups)[..., None]
    return np.broadcast_to(open_, grouped.shape).reshape(ranked.shape)


def mixture(x: ArrayLike, weights: ArrayLike, experts: Sequence[Callable[[Array], Array]]) -> Array:
    """sum over e of weight_e expert_e(x), every expert computed (arXiv:1701.06538). x [..., D], weights [..., E]."""
    x, weights = real(x), real(weights)
    parts = (weights[..., [e]] * expert(x) for e, expert in enumerate(experts))
    return sum(parts, np.zeros_like(x))


def shared_expert(x: ArrayLike, expert: Callable[[Array], Array], gate: ArrayLike | None = None) -> Array:
    """expert(x), times sigmoid(gate . x) where a gate [1, D] is given. x [..., D]."""
    y = expert(real(x))
    return y if gate is None else sigmoid(linear(x, gate)) * y


def load_balance(probabilities: ArrayLike, chosen: ArrayLike) -> float:
    """n_experts * sum_e(share_e * mean probability_e), least when all experts are used alike (arXiv:2101.03961).

    share_e: how many tokens chose e, over all tokens, so that the shares sum to n_active.
    probabilities [tokens, E], chosen [tokens, E] as of `choose`.
    """
    probabilities, chosen = real(probabilities), np.asarray(chosen)
    n_tokens = max(len(chosen), 1)  # without a token there is nothing to balance: 0, not 0/0
    return float(probabilities.shape[-1] * (chosen.sum(0) / n_tokens * (probabilities.sum(0) / n_tokens)).sum())
