"""The scalar functions, softmax, and the linear map that everything else is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])  # NumPy has no erf; libm's is exact to the last bit or so


def real(x: ArrayLike) -> Array:
    """x as a float64 array, the only number type of the reference."""
    return np.asarray(x, dtype=np.float64)


def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """x W^T + b. x [..., in], W [out, in], b [out] -> [..., out]."""
    y = real(x) @ real(weight).T
    return y if bias is None else y + real(bias)


def softmax(x: ArrayLike, axis: int = -1) -> Array:
    """exp(x_i) / sum_j exp(x_j). The largest x is subtracted first: the same value, and no overflow."""
    x = real(x)
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def log_softmax(x: ArrayLike, axis: int = -1) -> Array:
    """log softmax(x) = x_i - log sum_j exp(x_j), without taking the log of an underflowed 0."""
    x = real(x)
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x)), written so that neither tail overflows."""
    x = real(x)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def identity(x: ArrayLike) -> Array:
    """x."""
    return real(x)


def tanh(x: ArrayLike) -> Array:
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x))."""
    return np.tanh(real(x))


def relu(x: ArrayLike) -> Array:
    """max(0, x)."""
    return np.maximum(0.0, real(x))


def relu2(x: ArrayLike) -> Array:
    """max(0, x)^2 (So et al. 2021, arXiv:2109.08668)."""
    return relu(x) ** 2


def silu(x: ArrayLike) -> Array:
    """x sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118)."""
    return real(x) * sigmoid(x)


def gelu(x: ArrayLike) -> Array:
    """x Phi(x) with the exact normal distribution, Phi(x) = (1 + erf(x / sqrt 2)) / 2 (arXiv:1606.08415)."""
    x = real(x)
    return x * 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


def gelu_tanh(x: ArrayLike) -> Array:
    """GELU's approximation x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (arXiv:1606.08415)."""
    x = real(x)
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def quick_gelu(x: ArrayLike) -> Array:
    """GELU's approximation x sigmoid(1.702 x) (arXiv:1606.08415)."""
    return real(x) * sigmoid(1.702 * real(x))


ACTIVATIONS: dict[str, Callable[[Any], Array]] = {
    "identity": identity, "relu": relu, "relu2": relu2, "gelu": gelu, "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu, "silu": silu, "tanh": tanh, "sigmoid": sigmoid,
}  # fmt: skip


def soft_cap(x: ArrayLike, cap: float | None) -> Array:
    """cap tanh(x / cap): about x near 0, never beyond the cap (Gemma 2 2024, arXiv:2408.00118). None: x."""
    return real(x) if cap is None else cap * np.tanh(real(x) / cap)


def pooled(h: Array, chosen: np.ndarray, how: str) -> Array:
    """One state a row [B, T, D] -> [B, D] among the chosen ones [B, T]: the `mean`, the `first`, else the last."""
    if how == "mean":
        return (h * chosen[..., None]).sum(1) / chosen.sum(1, keepdims=True)
    column = np.arange(h.shape[1])
    index = np.where(chosen, column, h.shape[1]).min(1) if how == "first" else np.where(chosen, column, -1).max(1)
    return h[np.arange(len(h)), index]
