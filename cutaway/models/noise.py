"""An image to try a model on."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway import spec


def noise(record: spec.PatchEmbedding) -> Tensor:
    """An image [1 C H W] of normal numbers, the same each time."""
    sizes = (1, record.n_channels, record.image_height, record.image_width)
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))
