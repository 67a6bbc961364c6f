"""Self-attention with any number of key heads, and the cross-attention of a decoder."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.functions import interned
from cutaway.parts.kernels import Scoring, attend
from cutaway.parts.linear import Linear, together
from cutaway.parts.norms import normed
from cutaway.parts.positions import Placing
from cutaway.parts.slots import FULL, LayerCache
from cutaway.parts.step import Step
from cutaway.tap import tap


class MultiHead(nn.Module):
    """softmax(q k^T * scale) v per head, joined by o_proj. Order: project, QK-norm, clip, rotate.

    (Vaswani et al. 2017, arXiv:1706.03762; Shazeer 2019, arXiv:1911.02150; Ainslie et al. 2023, arXiv:2305.13245.)
    """

    def __init__(
        self,
        part: spec.MultiHead,
        d_model: int,
        placing: Placing,
        q_norm: nn.Module | None,
        k_norm: nn.Module | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.lends: int | None = None  # the name under which later layers of the step read these keys and values
        n = spec.sizes(part, d_model)
        self.n_heads, self.n_kv_heads = n.n_heads, n.n_kv_heads
        self.scoring = Scoring(n.scale, None if part.soft_cap == "none" else part.soft_cap, dropout)
        self.view_key = interned(part.mask)
        self.mask, self.placing, self.q_norm, self.k_norm = part.mask, placing, q_norm, k_norm
        self.norm_first = isinstance(part.qk_norm, spec.QKNorm) and part.qk_norm.over == "width"
        self.clip = None if part.clip == "none" else part.clip
        self.gate_width = {"none": 0, "per_head": 1, "per_element": n.value_dim}[part.output_gate]
        self.shared_from = None if part.share_kv == "none" else part.share_kv
        self.q_proj = Linear(d_model, n.n_heads * n.head_dim, part.q_bias)
        if self.shared_from is None:
            self.k_proj = Linear(d_model, n.n_kv_heads * n.head_dim, part.k_bias)
            self.v_proj = Linear(d_model, n.n_kv_heads * n.value_dim, part.v_bias)
        if self.gate_width:
            self.gate_proj = Linear(d_model, n.n_heads * self.gate_width, bias=False)
        self.o_proj = Linear(n.n_heads * n.value_dim, d_model, part.o_bias)
        self.sinks = nn.Parameter(torch.empty(n.n_heads)) if part.sinks else None

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        if self.shared_from is None:
            q, k, v = together(x, self.q_proj, self.k_proj, self.v_proj)
            keys, values, layout = self._own(k, v, step, cache)
        else:
            q = self.q_proj(x)
            keys, values, layout = step.notes["keys", self.shared_from]
        q = self.placing.rotate(self._prepare(q, self.n_heads, self.q_norm, "q"), step)
        q = tap(self, "q_rot", q)
        view = step.view(self.view_key, self.mask, layout, self.placing)
        if self.sinks is not None:
            view = replace(view, sinks=self.sinks)
        z = tap(self, "z", attend(self, q, keys, values, view, self.scoring))
        if self.gate_width:
            z = z * tap(self, "gate", torch.sigmoid(split_heads(self.gate_proj(x), self.n_heads)))
        return self.o_proj(z.transpose(1, 2).flatten(2))  # B T (N V)

    def _own(self, k: Tensor, v: Tensor, step: Step, cache: LayerCache | None) -> tuple[Tensor, Tensor, str]:
        k = self._prepare(k, self.n_kv_heads, self.k_norm, "k")
        v = tap(self, "v", self._clipped(split_heads(v, self.n_kv_heads)))
        k = tap(self, "k_rot", self.placing.rotate(k, step))
        keys, values = (k, v) if cache is None else cache.extend(k, v)
        own = keys, values, FULL if cache is None else cache.layout
        if self.lends is not None:
            step.notes["keys", self.lends] = own
        return own

    def _prepare(self, x: Tensor, n_heads: int, norm: nn.Module | None, name: str) -> Tensor:
        """Heads apart, normalised, clipped: what is called q or k before rotation."""
        return tap(self, name, self._clipped(split_heads(x, n_heads, norm, self.norm_first)))

    def _clipped(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)


class Cross(nn.Module):
    """Queries of the decoder on keys and values of the encoder's output, which its cache keeps from the first step."""

    def __init__(
        self, part: spec.Cross, d_model: int, q_norm: nn.Module | None, k_norm: nn.Module | None, dropout: float
    ) -> None:
        super().__init__()
        n = spec.sizes(part, d_model)
        self.n_heads, self.n_kv_heads = n.n_heads, n.n_kv_heads
        self.scoring = Scoring(n.scale, None if part.soft_cap == "none" else part.soft_cap, dropout)
        self.q_norm, self.k_norm = q_norm, k_norm
        self.norm_first = isinstance(part.qk_norm, spec.QKNorm) and part.qk_norm.over == "width"
        self.q_proj = Linear(d_model, n.n_heads * n.head_dim, part.q_bias)
        self.k_proj = Linear(d_model, n.n_kv_heads * n.head_dim, part.k_bias)
        self.v_proj = Linear(d_model, n.n_kv_heads * n.value_dim, part.v_bias)
        self.o_proj = Linear(n.n_heads * n.value_dim, d_model, part.o_bias)

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        q = tap(self, "q", split_heads(self.q_proj(x), self.n_heads, self.q_norm, self.norm_first))
        k, v = self._memory(step, cache)
        z = tap(self, "z", attend(self, q, k, v, step.memory_view(), self.scoring))
        return self.o_proj(z.transpose(1, 2).flatten(2))  # B T (N V)

    def _memory(self, step: Step, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        kept = None if cache is None else cache.memory()
        if kept is None:
            if step.memory is None:
                raise InputError("cross: there is nothing to look at; give `Given(memory=model.encode(source))`")
            k, v = together(step.memory.states, self.k_proj, self.v_proj)
            k = tap(self, "k", split_heads(k, self.n_kv_heads, self.k_norm, self.norm_first))
            kept = k, tap(self, "v", split_heads(v, self.n_kv_heads))
            if cache is not None:
                cache.keep_memory(*kept)
        return kept


class NoBranch(nn.Module):
    """A branch that gives 0: what is left of an attention or feed-forward network that was removed."""

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        return torch.zeros_like(x)


def split_heads(
    x: Float[Tensor, "B T NH"], n_heads: int, norm: nn.Module | None = None, norm_first: bool = False
) -> Float[Tensor, "B N T H"]:
    """The heads apart, each normalised alone or, with `norm_first`, all in one vector before."""
    x = normed(norm, x) if norm_first else x
    x = x.unflatten(-1, (n_heads, -1)).transpose(1, 2)  # B N T H
    return x if norm_first else normed(norm, x)
