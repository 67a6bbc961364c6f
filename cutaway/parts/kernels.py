"""How attention is computed: written out where someone looks or a fused kernel cannot, fused elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.parts.functions import soft_cap
from cutaway.parts.step import View
from cutaway.tap import tap, wanted


@dataclass(frozen=True)
class Scoring:
    """Factor on the scores, cap (None: none) and, in training, dropout of the weights."""

    scale: float
    soft_cap: float | None = None
    dropout: float = 0.0


def attend(
    module: nn.Module,
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S V"],
    view: View,
    scoring: Scoring,
) -> Float[Tensor, "B N T V"]:
    """softmax(cap(scale * q k^T) + bias, where allowed) v; query head n reads key head n // (N / K).

    A query that may see nothing gets 0. With sinks a logit a head joins the softmax and its weight is dropped.
    """
    if view.sinks is not None or scoring.soft_cap is not None or wanted(module, "scores", "pattern"):
        return _written_out(module, q, k, v, view, scoring)
    n, n_kv, n_queries = q.shape[1], k.shape[1], q.shape[2]
    dropout = scoring.dropout if module.training else 0.0
    if n_queries == 1 and n != n_kv:
        return _one_query(q, k, v, view, scoring.scale, dropout)
    return _fused(q, k, v, view, scoring.scale, dropout)


def _one_query(q: Tensor, k: Tensor, v: Tensor, view: View, scale: float, dropout: float) -> Tensor:
    """The heads of a group are the rows of one product: its keys are read once."""
    batch, n, _, width = q.shape
    n_kv = k.shape[1]
    if view.bias is not None and view.mask is not None:  # else it serves every row: B 1 1 S
        view = replace(view, mask=view.mask.unflatten(1, (n_kv, n // n_kv)).squeeze(3))
    z = _fused(q.reshape(batch, n_kv, n // n_kv, width), k, v, view, scale, dropout)
    return z.reshape(batch, n, 1, v.shape[3])


def _fused(q: Tensor, k: Tensor, v: Tensor, view: View, scale: float, dropout: float) -> Tensor:
    assert view.allowed is None or view.mask is not None  # `View.where` makes it
    more = {} if q.shape[1] == k.shape[1] else {"enable_gqa": True}  # a branch: compiled code learns the numbers by it
    z = F.scaled_dot_product_attention(q, k, v, view.mask, dropout, view.causal, scale=scale, **more)
    return z if view.hidden is None else z.masked_fill(view.hidden, 0.0)


def _written_out(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, view: View, scoring: Scoring) -> Tensor:
    n_queries, n_keys = q.shape[2], k.shape[2]
    groups = (k.shape[1], q.shape[1] // k.shape[1])
    scores = (q.unflatten(1, groups) @ k[:, :, None].transpose(-1, -2)).flatten(1, 2) * scoring.scale
    scores = soft_cap(scores, scoring.soft_cap)
    if view.bias is not None:
        scores = scores + view.bias
    allowed = view.allowed
    if view.causal:
        allowed = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q.device).tril()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    scores = tap(module, "scores", scores)  # B N T S
    pattern = tap(module, "pattern", _weights(scores, view.sinks).to(v.dtype))
    pattern = F.dropout(pattern, scoring.dropout, module.training)
    return (pattern.unflatten(1, groups) @ v[:, :, None]).flatten(1, 2)  # B N T V


def _weights(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """softmax over the keys, in float32 at least; a row without a single key gets 0, not NaN."""
    wide = scores if scores.dtype == torch.float64 else scores.float()
    top, sink = wide.amax(-1, keepdim=True), None
    if sinks is not None:
        sink = sinks.to(wide.dtype)[:, None, None].expand(*wide.shape[:-1], 1)
        top = torch.maximum(top, sink)
    top = top.masked_fill(top == -torch.inf, 0.0).detach()
    powers = (wide - top).exp()
    total = powers.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink - top).exp()
    return powers / total.masked_fill(total == 0, 1.0)
