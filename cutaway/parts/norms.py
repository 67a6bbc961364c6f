"""LayerNorm and RMSNorm. Statistics are in float32 at least; `scale` is the divisor, `normed` is before the gain."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.tap import heard, tap, wanted


def normed(norm: nn.Module | None, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """norm(x), or x where there is no norm."""
    return x if norm is None else norm(x)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016, arXiv:1607.06450).

    `heads` > 0: a row of weights for each head of an input [..., heads, T, D].
    """

    def __init__(self, width: int, eps: float, gain: bool = True, shift: bool = True, heads: int = 0) -> None:
        super().__init__()
        shape = (heads, 1, width) if heads else (width,)
        self.width, self.eps, self.heads = width, eps, heads
        self.weight = nn.Parameter(torch.ones(shape)) if gain else None
        self.bias = nn.Parameter(torch.zeros(shape)) if shift else None

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        if self.heads or wanted(self, "scale", "normed"):
            return self._plain(x)
        return F.layer_norm(x, (self.width,), self.weight, self.bias, self.eps)

    def _plain(self, x: Tensor) -> Tensor:
        wide = _wide(x)
        centred = wide - wide.mean(-1, keepdim=True)
        scale = tap(self, "scale", (centred.square().mean(-1, keepdim=True) + self.eps).sqrt())
        normed = tap(self, "normed", (centred / scale).to(x.dtype))
        normed = normed if self.weight is None else normed * self.weight
        return normed if self.bias is None else normed + self.bias


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019, arXiv:1910.07467).

    `one_plus`: the factor is 1 + weight, applied before the result is rounded to x's dtype (Gemma).
    """

    def __init__(self, width: int, eps: float, gain: str = "plain", heads: int = 0) -> None:
        super().__init__()
        shape = (heads, 1, width) if heads else (width,)
        self.width, self.eps, self.heads, self.one_plus = width, eps, heads, gain == "one_plus"
        start = torch.zeros(shape) if self.one_plus else torch.ones(shape)
        self.weight = None if gain == "none" else nn.Parameter(start)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        wide = _wide(x)
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)  # one pass, where square and mean take two
        eps = length.new_full((), self.eps)
        scale = tap(self, "scale", torch.addcmul(eps, length, length, value=1 / self.width).sqrt())
        ours = not (torch.is_grad_enabled() or heard())  # what is made here may be written over: nobody keeps it
        normed = wide.div_(scale) if ours and wide is not x else tap(self, "normed", wide / scale)
        if self.one_plus and self.weight is not None:
            return (normed * (1 + self.weight.to(wide.dtype))).to(x.dtype)
        normed = normed.to(x.dtype)
        if self.weight is None:
            return normed
        return normed.mul_(self.weight) if ours and self.weight.dtype == x.dtype else normed * self.weight


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x
