"""The feed-forward network of two matrices, and the gated one of three."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts.functions import ACTIVATIONS
from cutaway.parts.linear import Linear
from cutaway.parts.slots import LayerCache
from cutaway.parts.step import Step
from cutaway.tap import heard, tap


class Dense(nn.Module):
    """down(activation(up(x))), each position alone (Vaswani et al. 2017, arXiv:1706.03762)."""

    def __init__(self, part: spec.Dense, d_model: int, dropout: float) -> None:
        super().__init__()
        self.activation, self.dropout = ACTIVATIONS[part.activation], dropout
        self.up_proj = Linear(d_model, part.d_ff, part.up_bias)
        self.down_proj = Linear(part.d_ff, d_model, part.down_bias)

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        hidden = tap(self, "hidden", self.activation(tap(self, "pre", self.up_proj(x))))  # B T F
        if self.dropout and self.training:
            hidden = F.dropout(hidden, self.dropout)
        return self.down_proj(hidden)


class Gated(nn.Module):
    """down(activation(gate(x)) * up(x)), each position alone (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, part: spec.Gated, d_model: int, dropout: float) -> None:
        super().__init__()
        self.activation, self.dropout = ACTIVATIONS[part.activation], dropout
        self.alpha, self.offset = part.alpha, part.up_offset
        self.clamp = None if part.clamp == "none" else part.clamp
        self.gate_proj = Linear(d_model, part.d_ff, part.gate_bias)
        self.up_proj = Linear(d_model, part.d_ff, part.up_bias)
        self.down_proj = Linear(part.d_ff, d_model, part.down_bias)

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        pre, value = self.gate_proj(x), self.up_proj(x)  # B T F: one product of both takes longer
        if self.clamp is not None:
            pre, value = pre.clamp(max=self.clamp), value.clamp(-self.clamp, self.clamp)
        gate = tap(self, "gate", self._gate(tap(self, "pre", pre)))
        value = value + self.offset if self.offset else value
        hidden = tap(self, "hidden", gate * value if torch.is_grad_enabled() or heard() else gate.mul_(value))
        if self.dropout and self.training:
            hidden = F.dropout(hidden, self.dropout)
        return self.down_proj(hidden)

    def _gate(self, pre: Tensor) -> Tensor:
        return self.activation(pre) if self.alpha == 1.0 else pre * torch.sigmoid(self.alpha * pre)
