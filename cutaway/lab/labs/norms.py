"""Lab `norms`: two norms of the same four numbers.

State: `x` 4 numbers.

Result: `layer_norm`: `mean`, `centred` [4], `std`, `out` [4]; `rms_norm`: `mean_square`, `rms`, `out` [4]; `mean_out`
and `std_out` of LayerNorm's output, `mean_square_out` of RMSNorm's; `signs_kept` by each {layer_norm, rms_norm}; `flat`
(std 0: LayerNorm shows zeros); `before` a sentence that keeps RMSNorm's numbers back; `numbers` mean, centred, std,
layer_norm, mean_square, rms, rms_norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.norms import centre, layer_norm, rms_norm

DEFAULT: dict[str, Any] = {"x": [1.0, 1.0, 3.0, 5.0]}


def run(state: dict, say: Say) -> dict:
    """Both norms step by step, without gain, shift and eps; a vector without spread gives zeros."""
    x = State("norms", DEFAULT, state).array("x", (4,), 1e6)
    centred, ln, rms = centre(x), layer_norm(x), rms_norm(x)
    mean_square = float((x**2).mean())
    result = {
        "layer_norm": {"mean": x.mean(), "centred": centred, "std": np.sqrt((centred**2).mean()), "out": ln},
        "rms_norm": {"mean_square": mean_square, "rms": np.sqrt(mean_square), "out": rms},
        "mean_out": ln.mean(),
        "std_out": ln.std(),
        "mean_square_out": (rms**2).mean(),
        "signs_kept": {
            "layer_norm": bool((np.sign(ln) == np.sign(x)).all()),
            "rms_norm": bool((np.sign(rms) == np.sign(x)).all()),
        },
        "flat": bool((centred == 0).all()),
        "numbers": {
            "mean": show.fixed(x.mean(), 4),
            "centred": show.vector(centred),
            "std": show.fixed(np.sqrt((centred**2).mean()), 4),
            "layer_norm": show.vector(ln, 4),
            "mean_square": show.short(mean_square),
            "rms": show.short(np.sqrt(mean_square)),
            "rms_norm": show.vector(rms, 4),
        },
    }
    return show.plain(
        result
        | {
            "before": say("before", **result["numbers"]),
            "text": say("flat" if result["flat"] else "seen", **result["numbers"]),
        }
    )
