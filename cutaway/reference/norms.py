"""LayerNorm and RMSNorm, their gradients by hand, and the norm over a column that a Transformer does not use."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cutaway.reference.functions import Array, real


def centre(x: ArrayLike, axis: int = -1) -> Array:
    """x - mean(x). Measured from the first number, so that equal numbers give exactly 0."""
    x = real(x)
    x = x - np.take(x, [0], axis)
    return x - x.mean(axis, keepdims=True)


def inverse_root(mean_square: Array, eps: float) -> Array:
    """1 / sqrt(mean_square + eps), and 0 where that is 1/0: a vector without spread is normalised to zeros."""
    root = np.sqrt(mean_square + eps)
    return np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)


def layer_norm(
    x: ArrayLike, gain: ArrayLike | None = None, shift: ArrayLike | None = None, eps: float = 0.0, axis: int = -1
) -> Array:
    """(x - mean) / sqrt(var + eps) * gain + shift along one axis; var divides by n (arXiv:1607.06450).

    x [..., D]; gain, shift [D] or left out. The mean is 0 and the length sqrt(D) before gain and shift.
    """
    centred = centre(x, axis)
    y = centred * inverse_root((centred**2).mean(axis, keepdims=True), eps)
    y = y if gain is None else y * real(gain)
    return y if shift is None else y + real(shift)


def column_norm(x: ArrayLike, eps: float = 0.0) -> Array:
    """Each column of a table normalised over its rows, so that every row depends on the others. x [rows, D]."""
    return layer_norm(x, eps=eps, axis=-2)


def rms_norm(x: ArrayLike, gain: ArrayLike | None = None, eps: float = 0.0, one_plus: bool = False) -> Array:
    """x / sqrt(mean(x^2) + eps) * gain, or * (1 + gain) with one_plus (arXiv:1910.07467). x [..., D], gain [D]."""
    x = real(x)
    y = x * inverse_root((x**2).mean(-1, keepdims=True), eps)
    return y if gain is None else y * (real(gain) + one_plus)


def layer_norm_backward(
    upstream: ArrayLike, x: ArrayLike, gain: ArrayLike | None = None, eps: float = 0.0
) -> tuple[Array, Array, Array]:
    """The gradients for x [..., D], gain [D] and shift [D], from upstream = dLoss/dy [..., D].

    With n = normalised x, s = its root and u = upstream * gain: dx = (u - mean(u) - n mean(u n)) / s.
    The two subtracted terms are what the norm removes: a change of all numbers alike, and a change of length.
    """
    upstream = real(upstream)
    centred = centre(x)
    inverse = inverse_root((centred**2).mean(-1, keepdims=True), eps)
    normed = centred * inverse
    u = upstream if gain is None else upstream * real(gain)
    dx = (u - u.mean(-1, keepdims=True) - normed * (u * normed).mean(-1, keepdims=True)) * inverse
    return dx, _over_rows(upstream * normed), _over_rows(upstream)


def rms_norm_backward(
    upstream: ArrayLike, x: ArrayLike, gain: ArrayLike | None = None, eps: float = 0.0, one_plus: bool = False
) -> tuple[Array, Array]:
    """The gradients for x [..., D] and gain [D]: dx = (u - n mean(u n)) / s with u = upstream * gain."""
    upstream, x = real(upstream), real(x)
    inverse = inverse_root((x**2).mean(-1, keepdims=True), eps)
    normed = x * inverse
    u = upstream if gain is None else upstream * (real(gain) + one_plus)
    dx = (u - normed * (u * normed).mean(-1, keepdims=True)) * inverse
    return dx, _over_rows(upstream * normed)


def _over_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1]).sum(0)
