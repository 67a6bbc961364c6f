"""Lab `depth`: does a gradient reach the first layer, and whose numbers does a norm look at?

State: `layers` 1 to 50; `activation` sigmoid, tanh or relu; `residual` whether x is added back; `norm` none, layer or
batch, applied to what a layer reads; `gain` 0.25 to 4 on the random matrices; `seed`; for the second picture `batch`
1 to 64, the number of examples that are normalised together.

A layer is x <- [x +] act(gain norm(x) W) for 8 examples of 16 numbers; W has variance 1/16.

Result: `sizes` [layers + 1], the root mean square of x after each layer; `gradients` [layers + 1], that of the
gradient at each layer divided by that at the last; `first` the one at the input, `factor` its layers-th root (what one
layer multiplies by), `verdict` vanished (below 1e-3), exploded (above 1e3) or reaches; `norms`: `example` [4] and for
`layer` and `batch` the outputs `one`, `two` [4] of that example among two different sets of companions, their largest
`difference`, `test_gap` (root mean square between a training batch's statistics and those of all data), and `by_size`
for the batch sizes `sizes` the `spread` of its output over 200 random batches; `numbers` first, factor, size,
batch_difference, layer_difference, spread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array, identity, relu, sigmoid
from cutaway.reference.norms import column_norm, layer_norm, layer_norm_backward

DEFAULT: dict[str, Any] = {
    "layers": 30, "activation": "sigmoid", "residual": False, "norm": "none", "gain": 1.0, "seed": 0, "batch": 4,
}  # fmt: skip
EXAMPLES, WIDTH = 8, 16
EPS = 1e-5
SIZES = (2, 4, 8, 16, 32, 64)  # in a batch of 1 BatchNorm leaves 0 of everything
EXAMPLE = np.array([1.0, 2.0, 3.0, 6.0])
ALL_MEAN, ALL_STD = 3.0, 2.0
# Each function and its slope, written by its own value.
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "sigmoid": (sigmoid, lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y**2),
    "relu": (relu, lambda y: (y > 0).astype(np.float64)),
}
NORMS: dict[str, Callable[[Array], Array]] = {
    "none": identity,
    "layer": lambda x: layer_norm(x, eps=EPS),
    "batch": lambda x: column_norm(x, eps=EPS),
}


def run(state: dict, say: Say) -> dict:
    """The signal up, the gradient down, and one example under both norms."""
    values = State("depth", DEFAULT, state)
    layers, seed = values.whole("layers", 1, 50), values.whole("seed", 0, 2**32 - 1)
    design = (
        values.choice("activation", tuple(ACTIVATIONS)),
        values.choice("norm", tuple(NORMS)),
        values.flag("residual"),
    )
    rng = np.random.default_rng(seed)
    x, upstream = rng.normal(size=(2, EXAMPLES, WIDTH))
    matrices = values.number("gain", 0.25, 4) * rng.normal(size=(50, WIDTH, WIDTH))[:layers] / np.sqrt(WIDTH)
    states = forward(x, matrices, *design)
    sizes = [_rms(each) for each in states]
    gradients = [_rms(each) for each in backward(upstream, states, matrices, *design)]
    relative = [each / gradients[-1] for each in gradients]
    first = relative[0]
    verdict = "vanished" if first < 1e-3 else "exploded" if first > 1e3 else "reaches"
    norms = _norms(values.whole("batch", 1, 64), seed)
    numbers = {
        "first": show.size(first),
        "factor": show.fixed(first ** (1 / layers), 3),
        "size": show.size(sizes[-1]),
        "batch_difference": show.fixed(norms["batch"]["difference"]),
        "layer_difference": show.fixed(norms["layer"]["difference"]),
        "spread": show.fixed(norms["spread"]),
    }
    text = f"{say(verdict, layers=layers, **numbers)} {say('norms', batch=values.values['batch'], **numbers)}"
    return show.plain(
        {
            "sizes": sizes, "gradients": relative, "first": first, "factor": first ** (1 / layers),
            "verdict": verdict, "norms": norms, "numbers": numbers, "text": text,
        }
    )  # fmt: skip


def forward(x: Array, matrices: Array, activation: str, norm: str, residual: bool) -> list[Array]:
    """x [examples, width] and the states after each of the matrices [n, width, width]."""
    act, states = ACTIVATIONS[activation][0], [x]
    for matrix in matrices:
        x = act(NORMS[norm](x) @ matrix) + (x if residual else 0.0)
        states.append(x)
    return states


def backward(
    upstream: Array, states: list[Array], matrices: Array, activation: str, norm: str, residual: bool
) -> list[Array]:
    """The gradient of sum(upstream * last state) at every state, first to last."""
    act, slope = ACTIVATIONS[activation]
    gradients = [upstream]
    for x, matrix in zip(reversed(states[:-1]), reversed(matrices), strict=True):
        above = gradients[-1]
        below = (above * slope(act(NORMS[norm](x) @ matrix))) @ matrix.T
        if norm == "layer":
            below = layer_norm_backward(below, x, eps=EPS)[0]
        elif norm == "batch":
            below = layer_norm_backward(below.T, x.T, eps=EPS)[0].T
        gradients.append(below + above if residual else below)
    return gradients[::-1]


def _rms(x: Array) -> float:
    return float(np.sqrt((x**2).mean()))


def _norms(batch: int, seed: int) -> dict[str, Any]:
    companions = np.random.default_rng([seed, 1]).normal(ALL_MEAN, ALL_STD, size=(2, batch - 1, 4))
    groups = [np.concatenate([EXAMPLE[None], each]) for each in companions]
    found: dict[str, Any] = {"example": EXAMPLE, "batch_size": batch}
    for name in ("batch", "layer"):
        one, two = (NORMS[name](group)[0] for group in groups)
        found[name] = {"one": one, "two": two, "difference": float(np.abs(one - two).max())}
    of_all = (EXAMPLE - ALL_MEAN) / np.sqrt(ALL_STD**2 + EPS)
    found["batch"]["test_gap"] = _rms(found["batch"]["one"] - of_all)
    found["layer"]["test_gap"] = 0.0
    spreads = {name: [spread(name, size, seed) for size in SIZES] for name in ("batch", "layer")}
    found["by_size"] = {"sizes": SIZES, **spreads}
    found["spread"] = spread("batch", batch, seed)
    return found


@lru_cache(maxsize=4096)
def spread(norm: str, batch: int, seed: int) -> float:
    """How far the example's output is scattered over 200 random batches: the root mean square of the std."""
    companions = np.random.default_rng([seed, 2, batch]).normal(ALL_MEAN, ALL_STD, size=(200, batch - 1, 4))
    outputs = np.stack([NORMS[norm](np.concatenate([EXAMPLE[None], each]))[0] for each in companions])
    return _rms((outputs - outputs[0]).std(0))
