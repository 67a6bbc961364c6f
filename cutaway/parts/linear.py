"""The linear map, and several of them on one input."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.tap import heard


class Linear(nn.Module):
    """x W^T + b, W of shape [d_out, d_in]. Uninitialised: `models.init` or a checkpoint fills it."""

    def __init__(self, d_in: int, d_out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return product(x, self.weight, self.bias)


def product(x: Float[Tensor, "*B I"], weight: Float[Tensor, "O I"], bias: Tensor | None) -> Float[Tensor, "*B O"]:
    """x W^T + b. A single row is a vector: its kernel reads the matrix once, for bfloat16 in half the time."""
    if x.numel() != weight.shape[1]:
        return F.linear(x, weight, bias)
    row = x.reshape(-1)
    image = torch.mv(weight, row) if bias is None else torch.addmv(bias, weight, row)
    return image.view(*x.shape[:-1], -1)


def together(x: Float[Tensor, "*B I"], *maps: Linear) -> Sequence[Tensor]:
    """Each map's image of the same x: of several rows in one product, where the weights allow it and no hook waits."""
    one = None if torch.is_grad_enabled() or x.numel() == x.shape[-1] or any(map(touched, maps)) else joined(maps)
    if one is None:
        return [each(x) for each in maps]
    images = F.linear(x, one).split([len(each.weight) for each in maps], -1)
    return [image.contiguous() for image in images] if heard() else images  # what is kept keeps no more than itself


def touched(module: nn.Module) -> bool:
    """Whether calling the module does more than, or other than, its class's forward, or a hook hears its gradients."""
    own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(own or "forward" in vars(module) or nn.modules.module._has_any_global_hook())


def joined(maps: Sequence[Linear]) -> Tensor | None:
    """The weights of maps as one matrix, if it is there already: one after the other in one piece of memory.

    It is a view, so a change of any of them shows. Maps with biases stay apart, and so does what stands in a map's or
    a weight's place: adapters, parametrised weights, those of `torch.func`.
    """
    if torch.compiler.is_compiling() or any(type(each) is not Linear or each.bias is not None for each in maps):
        return None
    weights = [each.weight for each in maps]
    if any(type(weight) is not nn.Parameter for weight in weights):
        return None
    first, end = weights[0], weights[0].data_ptr()
    for weight in weights:
        if weight.data_ptr() != end or not weight.is_contiguous() or weight.dtype != first.dtype:
            return None
        end += weight.nbytes
    storage = first.untyped_storage()
    if end > storage.data_ptr() + storage.nbytes():  # neighbours by chance
        return None
    rows = sum(len(weight) for weight in weights)
    return first.detach().as_strided((rows, first.shape[1]), (first.shape[1], 1))
