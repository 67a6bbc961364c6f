"""Multi-head latent attention: keys and values live in one narrow latent a token."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts.attention import split_heads
from cutaway.parts.functions import interned
from cutaway.parts.kernels import Scoring, attend
from cutaway.parts.linear import Linear
from cutaway.parts.norms import normed
from cutaway.parts.positions import Placing
from cutaway.parts.slots import FULL, LayerCache
from cutaway.parts.step import Step
from cutaway.tap import tap


class Latent(nn.Module):
    """q from x or a narrow latent; k, v rebuilt from c = kv_norm(kv_down x); one rotated key for all heads.

    The cache holds c and the rotated key, (kv_rank + rope_dim) numbers a token. (DeepSeek-V2 2024, arXiv:2405.04434.)
    """

    def __init__(
        self,
        part: spec.Latent,
        d_model: int,
        placing: Placing,
        q_norm: nn.Module | None,
        kv_norm: nn.Module | None,
        dropout: float,
    ) -> None:
        super().__init__()
        n = spec.sizes(part, d_model)
        self.n_heads, self.scoring = n.n_heads, Scoring(n.scale, None, dropout)
        self.nope_dim, self.rope_dim, self.value_dim = part.nope_dim, part.rope_dim, part.value_dim
        self.view_key = interned(part.mask)
        self.kv_rank, self.mask, self.placing = part.kv_rank, part.mask, placing
        q_width = part.n_heads * (part.nope_dim + part.rope_dim)
        self.narrow_q = part.q_rank != "none"
        if part.q_rank == "none":
            self.q_proj = Linear(d_model, q_width, bias=False)
        else:
            self.q_down = Linear(d_model, part.q_rank, part.down_bias)
            self.q_norm = q_norm
            self.q_up = Linear(part.q_rank, q_width, bias=False)
        self.kv_down = Linear(d_model, part.kv_rank + part.rope_dim, part.down_bias)
        self.kv_norm = kv_norm
        self.kv_up = Linear(part.kv_rank, part.n_heads * (part.nope_dim + part.value_dim), bias=False)
        self.o_proj = Linear(part.n_heads * part.value_dim, d_model, part.o_bias)

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        q = self.q_up(normed(self.q_norm, self.q_down(x))) if self.narrow_q else self.q_proj(x)
        q = tap(self, "q", split_heads(q, self.n_heads))
        plain, turned = q.split((self.nope_dim, self.rope_dim), -1)
        q = tap(self, "q_rot", torch.cat((plain, self.placing.rotate(turned, step)), -1))
        k, v, layout = self._keys_values(x, step, cache)
        view = step.view(self.view_key, self.mask, layout, self.placing)
        z = attend(self, q, k, v, view, self.scoring)
        return self.o_proj(tap(self, "z", z).transpose(1, 2).flatten(2))  # B T (N V)

    def _keys_values(self, x: Tensor, step: Step, cache: LayerCache | None) -> tuple[Tensor, Tensor, str]:
        latent, turned = self.kv_down(x).split((self.kv_rank, self.rope_dim), -1)
        latent = tap(self, "latent", normed(self.kv_norm, latent))
        turned = self.placing.rotate(turned[:, None], step)  # B 1 T R
        if cache is not None:
            turned, latent = cache.extend(turned, latent[:, None])
            latent = latent[:, 0]
        rebuilt = split_heads(self.kv_up(latent), self.n_heads)  # B N S (P V)
        plain, v = rebuilt.split((self.nope_dim, self.value_dim), -1)
        k = torch.cat((plain, turned.expand(-1, self.n_heads, -1, -1)), -1)
        return tap(self, "k_rot", k), tap(self, "v", v), FULL if cache is None else cache.layout
