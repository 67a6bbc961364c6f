"""One step of SGD, Adam and AdamW for one array; the caller keeps the state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutaway.reference.functions import Array, real


@dataclass(frozen=True)
class AdamRule:
    """Settings of a run; eps is added to the root."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Moments:
    """Running means of the gradient and of its square, and how many steps went in."""

    first: Array
    second: Array
    steps: int = 0

    @staticmethod
    def of(parameter: ArrayLike) -> Moments:
        return Moments(np.zeros_like(real(parameter)), np.zeros_like(real(parameter)))


def sgd(
    parameter: ArrayLike, gradient: ArrayLike, velocity: ArrayLike, lr: float, momentum: float = 0.0
) -> tuple[Array, Array]:
    """v = momentum * v + g; p - lr * v. Returns the parameter and v."""
    velocity = momentum * real(velocity) + real(gradient)
    return real(parameter) - lr * velocity, velocity


def adam(parameter: ArrayLike, gradient: ArrayLike, moments: Moments, rule: AdamRule) -> tuple[Array, Moments]:
    """p - lr m^ / (sqrt(v^) + eps), m and v running means of g and g^2, ^ divided by 1 - beta^t (arXiv:1412.6980).

    Weight decay is part of the gradient: g + decay * p.
    """
    return _step(real(parameter), real(gradient) + rule.weight_decay * real(parameter), moments, rule)


def adamw(parameter: ArrayLike, gradient: ArrayLike, moments: Moments, rule: AdamRule) -> tuple[Array, Moments]:
    """As Adam, but decay shrinks the parameter itself: p (1 - lr * decay) first (arXiv:1711.05101)."""
    return _step(real(parameter) * (1 - rule.lr * rule.weight_decay), real(gradient), moments, rule)


def _step(parameter: Array, gradient: Array, moments: Moments, rule: AdamRule) -> tuple[Array, Moments]:
    t = moments.steps + 1
    first = rule.beta1 * moments.first + (1 - rule.beta1) * gradient
    second = rule.beta2 * moments.second + (1 - rule.beta2) * gradient**2
    mean, square = first / (1 - rule.beta1**t), second / (1 - rule.beta2**t)
    return parameter - rule.lr * mean / (np.sqrt(square) + rule.eps), Moments(first, second, t)
