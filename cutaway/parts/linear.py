"""The linear map, and several of them on one input."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Linear(nn.Module):
    """x W^T + b, W of shape [d_out, d_in]. Uninitialised: `models.init` or a checkpoint fills it."""

    def __init__(self, d_in: int, d_out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return F.linear(x, self.weight, self.bias)


def together(x: Float[Tensor, "*B I"], *maps: Linear) -> tuple[Tensor, ...]:
    """Each map's image of the same x: the one place that may compute them as a single product."""
    return tuple(each(x) for each in maps)
