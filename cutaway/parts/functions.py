"""The activations by their spec names, the soft cap, and keys for what a step remembers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
import torch.nn.functional as F
from torch import Tensor


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": _quick_gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "identity": torch.clone,  # as of the others, what it gives is its own and may be written over
    "removed": torch.ones_like,
}


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(x / cap): nearly x where small, never beyond the cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


_KEYS: dict[Hashable, int] = {}


def interned(value: Hashable) -> int:
    """One number for equal values: a key that costs nothing to look up, where hashing a record each step would."""
    return _KEYS.setdefault(value, len(_KEYS))
