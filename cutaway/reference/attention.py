"""Attention: scores, the pattern they make, and the heads around them; then latent attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutaway.errors import InputError
from cutaway.reference.functions import Array, identity, linear, real, sigmoid, soft_cap

Weights = Mapping[str, Array]


def pattern(scores: ArrayLike, visible: ArrayLike = True, sinks: ArrayLike | None = None) -> Array:
    """softmax over the visible keys; a query that sees none gets zeros. scores [..., N, T, S] -> the same shape.

    sinks [N]: one more logit a head takes part in the softmax, and its weight is thrown away (arXiv:2309.17453).
    """
    scores = np.where(visible, real(scores), -np.inf)
    extra = -np.inf if sinks is None else real(sinks)[:, None, None]
    top = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), extra)
    top = np.where(np.isneginf(top), 0.0, top)
    powers = np.exp(scores - top)
    total = powers.sum(-1, keepdims=True) + np.exp(extra - top)
    return np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)


def attend(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, visible: ArrayLike = True, scale: float | None = None
) -> tuple[Array, Array]:
    """softmax(q k^T * scale) v and the pattern itself; scale 1/sqrt(H) unless given (arXiv:1706.03762).

    q [..., T, H], k [..., S, H], v [..., S, Hv], visible [..., T, S] -> [..., T, Hv] and [..., T, S].
    """
    q, k = real(q), real(k)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    weights = pattern(q @ np.swapaxes(k, -1, -2) * scale, visible)
    return weights @ real(v), weights


def split_heads(x: ArrayLike, n_heads: int) -> Array:
    """[B, T, N*H] -> [B, N, T, H]. Raises InputError where the width is not a multiple of the heads."""
    x = real(x)
    if x.shape[-1] % n_heads:
        raise InputError(f"{n_heads} heads cannot share a width of {x.shape[-1]} equally")
    return np.swapaxes(x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads), -3, -2)


def join_heads(x: ArrayLike) -> Array:
    """[B, N, T, H] -> [B, T, N*H]."""
    x = np.swapaxes(real(x), -3, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def repeat_heads(x: ArrayLike, n_heads: int) -> Array:
    """[B, K, S, H] -> [B, N, S, H]: query head n reads key head n // (N/K) (arXiv:2305.13245)."""
    x = real(x)
    if n_heads % x.shape[-3]:
        raise InputError(f"{n_heads} query heads cannot share {x.shape[-3]} key heads equally")
    return np.repeat(x, n_heads // x.shape[-3], axis=-3)


@dataclass(frozen=True)
class Heads:
    """What varies between attentions, as plain values and functions.

    `q_norm` and `k_norm` act on heads [B, N, T, H], or on the whole projection [B, T, N*H] with `norm_over_width`.
    `turn` puts positions into q and k (RoPE); `bias` [B, N, T, S] is added to the scores after the soft cap.
    `gate`: none, per_head or per_element: the sigmoid of a projection of x that multiplies each head's output.
    """

    n_heads: int = 1
    n_kv_heads: int | None = None
    scale: float | None = None
    q_norm: Callable[[Array], Array] = identity
    k_norm: Callable[[Array], Array] = identity
    norm_over_width: bool = False
    clip: float | None = None
    turn: Callable[[Array], Array] = identity
    soft_cap: float | None = None
    bias: ArrayLike = 0.0
    gate: str = "none"


def multi_head(
    x: ArrayLike, weights: Weights, heads: Heads, visible: ArrayLike = True, memory: ArrayLike | None = None
) -> Array:
    """All heads attend, their outputs are joined and projected. x [B, T, D] -> [B, T, D] (arXiv:1706.03762).

    memory [B, S, D] is what keys and values come from: the encoder's output in cross-attention, else x itself.
    visible [B, T, S] or what broadcasts to it. weights: q_proj, k_proj, v_proj, o_proj, each `.weight` and perhaps
    `.bias`, and perhaps `sinks` [N]; a projection without weights is the identity.
    """
    return attend_over(x, keys_and_values(x if memory is None else memory, weights, heads), weights, heads, visible)


def attend_over(
    x: ArrayLike, kv: tuple[Array, Array], weights: Weights, heads: Heads, visible: ArrayLike = True
) -> Array:
    """Multi-head attention over ready keys [B, K, S, H] and values: own ones, or those of an earlier layer."""
    z = weighted(queries(x, weights, heads), *kv, heads, visible, weights.get("sinks"))
    if heads.gate != "none":
        z = z * split_heads(sigmoid(project(x, weights, "gate_proj")), heads.n_heads)  # B N T 1, or B N T Hv
    return project(join_heads(z), weights, "o_proj")


def queries(x: ArrayLike, weights: Weights, heads: Heads) -> Array:
    """q [B, N, T, H]: project, normalise, clip, rotate."""
    return _prepared(project(x, weights, "q_proj"), heads.n_heads, heads.q_norm, heads)


def keys_and_values(memory: ArrayLike, weights: Weights, heads: Heads) -> tuple[Array, Array]:
    """k [B, K, S, H] as the queries; v [B, K, S, Hv] projected and clipped."""
    n_kv_heads = heads.n_kv_heads or heads.n_heads
    k = _prepared(project(memory, weights, "k_proj"), n_kv_heads, heads.k_norm, heads)
    return k, split_heads(clipped(project(memory, weights, "v_proj"), heads.clip), n_kv_heads)


def _prepared(x: Array, n: int, norm: Callable[[Array], Array], heads: Heads) -> Array:
    split = split_heads(norm(x), n) if heads.norm_over_width else norm(split_heads(x, n))
    return heads.turn(clipped(split, heads.clip))


def weighted(
    q: Array, k: Array, v: Array, heads: Heads, visible: ArrayLike = True, sinks: ArrayLike | None = None
) -> Array:
    """z [B, N, T, Hv]: scores scaled, capped, biased and masked, made a pattern that weighs the values."""
    k, v = repeat_heads(k, q.shape[-3]), repeat_heads(v, q.shape[-3])
    scale = 1 / math.sqrt(q.shape[-1]) if heads.scale is None else heads.scale
    scores = soft_cap(q @ np.swapaxes(k, -1, -2) * scale, heads.soft_cap) + real(heads.bias)
    each_head = visible if np.ndim(visible) < 3 else np.asarray(visible)[:, None]
    return pattern(scores, each_head, sinks) @ v


def project(x: ArrayLike, weights: Weights, name: str) -> Array:
    """x W^T + b with the weights of that name; x itself where there are none."""
    weight = weights.get(f"{name}.weight")
    return real(x) if weight is None else linear(x, weight, weights.get(f"{name}.bias"))


def clipped(x: Array, limit: float | None) -> Array:
    """x held within [-limit, limit] (OLMo 2024, arXiv:2402.00838). None: x."""
    return x if limit is None else np.clip(x, -limit, limit)


@dataclass(frozen=True)
class LatentShape:
    """The widths of latent attention: of a head's unrotated part, its rotated part, and its value."""

    n_heads: int
    nope_dim: int
    rope_dim: int
    value_dim: int


def latent(x: ArrayLike, weights: Weights, shape: LatentShape, heads: Heads, visible: ArrayLike = True) -> Array:
    """Attention whose keys and values are rebuilt from one narrow vector a token (DeepSeek-V2, arXiv:2405.04434).

    q = q_up(norm(q_down x)), or q_proj x where the query has no latent; c, r = kv_down x; a head's key is its part of
    kv_up(norm(c)) followed by the turned r, which all heads share; its value the rest of kv_up(norm(c)).
    heads.q_norm and k_norm are the latents' norms; scale 1/sqrt(nope_dim + rope_dim) unless given.
    """
    n, nope, rope = shape.n_heads, shape.nope_dim, shape.rope_dim
    if "q_down.weight" in weights:
        q = project(heads.q_norm(project(x, weights, "q_down")), weights, "q_up")
    else:
        q = project(x, weights, "q_proj")
    q = split_heads(q, n)
    q = np.concatenate([q[..., :nope], heads.turn(q[..., nope:])], -1)  # B N T nope+rope
    down = project(x, weights, "kv_down")
    up = split_heads(project(heads.k_norm(down[..., :-rope]), weights, "kv_up"), n)  # B N S nope+value
    shared = heads.turn(split_heads(down[..., -rope:], 1))  # B 1 S rope
    k = np.concatenate([up[..., :nope], np.broadcast_to(shared, (*up.shape[:-1], rope))], -1)
    return project(join_heads(weighted(q, k, up[..., nope:], heads, visible)), weights, "o_proj")
