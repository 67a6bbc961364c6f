"""Weights to start training from."""

from __future__ import annotations

import torch
from torch import nn

from cutaway.parts.block import Block
from cutaway.parts.embedding import Table
from cutaway.parts.head import TokenHead
from cutaway.parts.linear import Linear
from cutaway.parts.moe import Router
from cutaway.parts.positions import BucketTable


def initialise(model: nn.Module, seed: int = 0, std: float = 0.02) -> None:
    """Matrices and tables normal with `std`, what writes to the stream divided by sqrt(2 n_layers), biases and sinks 0.

    (Radford et al. 2019, GPT-2.) Norms start as the identity. Equal seeds give equal weights on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    depth = max(sum(isinstance(module, Block) for module in model.modules()), 1)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, (Linear, Table, Router, BucketTable, TokenHead)) and module.weight is not None:
                scale = std / (2 * depth) ** 0.5 if name.endswith(("o_proj", "down_proj")) else std
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * scale)
            for own, parameter in module.named_parameters(recurse=False):
                if own == "class_token":
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
                if own in ("bias", "sinks", "choice_bias") and parameter is not None:
                    parameter.zero_()
