"""Lab `residual-path`: how many norms stand on the path from input to output.

State: `design` `post` (2017) or `pre` (today's); `layers` 1 to 24, a layer being one sublayer; `x` and `f` 4 numbers
each, the input and a sublayer's output in the worked example; `gain` of the measured layers' random matrices; `seed`.

Result: `nodes` in order, each `kind` (`norm`, `sublayer`, `add`), `on_path`, `layer` (0 for the final norm);
`in_layers` and `at_end`, the norms on the path; `in_blocks` the same if every layer were a block of two sublayers;
`worked` {post, pre}: norm(x + f) and x + f; `gradients` {post, pre}: [layers + 1] how much of a small change of x
before each layer arrives at the output, and `direct` {post, pre}: how much of it comes along the path alone, the
product of the norms' divisions; `numbers` in_layers, at_end, post, pre, gradient_*, direct_*.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.rules import WIDTH, draw, mean_factors
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import Array
from cutaway.reference.norms import layer_norm, layer_norm_backward
from cutaway.reference.residual import norms_on_path, stack, stack_backward

DESIGNS = ("post", "pre")
DEFAULT: dict[str, Any] = {
    "design": "post",
    "layers": 3,
    "x": [1.0, -1.0, 0.5, -0.5],
    "f": [3.0, 3.0, -3.0, -3.0],
    "gain": 1.0,
    "seed": 0,
}


def run(state: dict, say: Say) -> dict:
    """The norms counted, and what they do to the gradient measured, in both designs."""
    values = State("residual-path", DEFAULT, state)
    design, layers = values.choice("design", DESIGNS), values.whole("layers", 1, 24)
    x, f = values.array("x", (4,), 1000), values.array("f", (4,), 1000)
    gain, (first, matrices) = values.number("gain", 0.1, 4), draw(values.whole("seed", 0, 9999), layers)
    measured = {name: _measure(name, first, gain * matrices) for name in DESIGNS}
    in_layers, at_end = norms_on_path(design, layers)
    result = {
        "nodes": _nodes(design, layers),
        "in_layers": in_layers,
        "at_end": at_end,
        "in_blocks": 2 * in_layers,
        "worked": {"post": layer_norm(x + f), "pre": x + f},
        "gradients": {name: gradients for name, (gradients, _) in measured.items()},
        "direct": {name: direct for name, (_, direct) in measured.items()},
    }
    numbers = _numbers(result)
    return show.plain(result | {"numbers": numbers, "text": _sentence(say, design, layers, numbers)})


def _measure(design: str, x: Array, matrices: Array) -> tuple[list[float], float]:
    """By what a small change before each layer is multiplied, and what the path alone brings of the first."""
    states, upstream = stack(x, matrices, design), np.eye(WIDTH)
    divided = states[-1:]
    if design == "pre":
        upstream = layer_norm_backward(upstream, states[-1])[0]  # the final norm
    else:
        divided = [x + matrix @ x for x, matrix in zip(states[:-1], matrices, strict=True)]
    gradients = mean_factors(stack_backward(upstream, states, matrices, design))
    return gradients, float(np.prod([1 / np.std(each) for each in divided]))


def _nodes(design: str, layers: int) -> list[dict[str, Any]]:
    order = ("sublayer", "add", "norm") if design == "post" else ("norm", "sublayer", "add")
    nodes = [
        {"kind": kind, "on_path": kind == "add" or (kind == "norm" and design == "post"), "layer": layer}
        for layer in range(1, layers + 1)
        for kind in order
    ]
    return nodes if design == "post" else [*nodes, {"kind": "norm", "on_path": True, "layer": 0}]


def _numbers(result: dict) -> dict[str, str]:
    numbers = {"in_layers": str(result["in_layers"]), "at_end": str(result["at_end"])}
    numbers |= {"post": show.vector(result["worked"]["post"]), "pre": show.short_vector(result["worked"]["pre"])}
    for design in DESIGNS:
        numbers[f"gradient_{design}"] = show.size(result["gradients"][design][0])
        numbers[f"direct_{design}"] = show.size(result["direct"][design])
    return numbers


def _sentence(say: Say, design: str, layers: int, numbers: dict[str, str]) -> str:
    path = say("path", direct=numbers[f"direct_{design}"])
    return f"{say(design, layers=layers, in_blocks=2 * layers)} {path}"
