"""How a layer updates x, four ways, forward and backward by hand. f(x) = W x with a fresh random W a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cutaway.reference.functions import Array
from cutaway.reference.norms import layer_norm, layer_norm_backward

RULES = {
    "f": "x <- f(x)",
    "res": "x <- x + f(x)",
    "post": "x <- LayerNorm(x + f(x))",
    "pre": "x <- x + f(LayerNorm(x))",
}
WIDTH = 8
MOST = 30


def draw(seed: int, gain: float, n: int) -> tuple[Array, list[Array]]:
    """The first vector and n layers' matrices: normal numbers, variance gain^2 / 8; 30 are drawn whatever n is."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=WIDTH)
    return x, [gain * (generator.normal(size=(WIDTH, WIDTH)) / math.sqrt(WIDTH)) for _ in range(MOST)][:n]


def step(rule: str, x: Array, weight: Array) -> Array:
    """x after one layer."""
    match rule:
        case "f":
            return weight @ x
        case "res":
            return x + weight @ x
        case "post":
            return layer_norm(x + weight @ x)
    return x + weight @ layer_norm(x)


def step_backward(rule: str, x: Array, weight: Array, upstream: Array) -> Array:
    """The gradient for the layer's input x from that of its output, upstream [..., 8]."""
    match rule:
        case "f":
            return upstream @ weight
        case "res":
            return upstream + upstream @ weight
        case "post":
            inner = layer_norm_backward(upstream, x + weight @ x)[0]
            return inner + inner @ weight
    return upstream + layer_norm_backward(upstream @ weight, x)[0]


def forward(rule: str, x: Array, weights: Sequence[Array]) -> list[Array]:
    """x before the first layer and after each."""
    xs = [x]
    for weight in weights:
        xs.append(step(rule, xs[-1], weight))
    return xs


def gradient_sizes(rule: str, xs: Sequence[Array], weights: Sequence[Array], upstream: Array) -> list[float]:
    """How much of a small change of x before each layer, and after the last, arrives at the end.

    The root mean square over the 8 directions of the derivative that upstream [8, 8] begins with.
    """
    sizes = [_size(upstream)]
    for x, weight in zip(reversed(xs[:-1]), reversed(weights), strict=True):
        upstream = step_backward(rule, x, weight, upstream)
        sizes.append(_size(upstream))
    return sizes[::-1]


def _size(derivative: Array) -> float:
    return float(np.sqrt((derivative**2).sum() / WIDTH))
