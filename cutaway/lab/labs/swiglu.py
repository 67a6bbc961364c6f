"""Lab `swiglu`: a gate decides how much of a value passes, and what a third matrix costs.

State: `g` the gate, -6 to 6, and `u` the value, -3 to 3; `d_model`, `d_ff` of a plain network, and `multiple`, what
the gated network's width is rounded up to (1: to the nearest whole number instead).

Result: `sigmoid`, `silu`, `relu` of g, `output` silu * u; `curve`: `z`, `silu`, `relu` [121]; `weights`: `plain`
(2 d_model d_ff), `width_exact` (2/3 d_ff), `width`, `gated` (3 d_model width), `difference` gated - plain, `ratio`
(2/3), `same_width` (3 d_model d_ff: what it would be unshrunk), `share` of the plain network in a layer with
attention's 4 d_model^2; `numbers` silu, output, value, width_exact, width, plain, gated, difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.functions import relu, sigmoid, silu

DEFAULT: dict[str, Any] = {"g": -1.0, "u": 2.0, "d_model": 512, "d_ff": 2048, "multiple": 1}


def run(state: dict, say: Say) -> dict:
    """SiLU(g) u with SiLU(z) = z sigmoid(z) (arXiv:2002.05202)."""
    values = State("swiglu", DEFAULT, state)
    g, u = values.number("g", -6, 6), values.number("u", -3, 3)
    z = np.linspace(-6, 6, 121)
    gate = float(silu(g))
    weights = _weights(values)
    numbers = {
        "value": show.fixed(u, 1),
        "silu": show.fixed(gate, 4),
        "output": show.fixed(gate * u, 4),
        "width_exact": show.short(weights["width_exact"], 2),
        **{key: f"{weights[key]:,}" for key in ("width", "plain", "gated", "difference")},
    }
    return show.plain(
        {
            "sigmoid": float(sigmoid(g)), "silu": gate, "relu": float(relu(g)), "output": gate * u,
            "curve": {"z": z, "silu": silu(z), "relu": relu(z)}, "weights": weights, "numbers": numbers,
            "text": say("seen", g=show.short(g, 2), relu=show.fixed(float(relu(g)) * u, 4), **numbers),
        }
    )  # fmt: skip


def _weights(values: State) -> dict[str, Any]:
    d_model, d_ff = values.whole("d_model", 1, 100_000), values.whole("d_ff", 1, 400_000)
    multiple = values.whole("multiple", 1, 1024)
    width = (2 * d_ff + 1) // 3 if multiple == 1 else -(-2 * d_ff // (3 * multiple)) * multiple
    plain, gated = 2 * d_model * d_ff, 3 * d_model * width
    return {
        "plain": plain, "width_exact": 2 * d_ff / 3, "width": width, "gated": gated, "difference": gated - plain,
        "ratio": 2 / 3, "same_width": 3 * d_model * d_ff, "share": plain / (plain + 4 * d_model**2),
    }  # fmt: skip
