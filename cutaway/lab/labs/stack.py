"""Lab `stack`: does the signal survive 30 layers?

State: `rule` `f`, `res`, `post` or `pre` (see `rules`); `gain` 0.1 to 4; `n` layers, 1 to 30; `seed`.

Result: `rules` {id: formula}; of the chosen rule `sizes` [n + 1], the length of x before the first layer and after
each, `gradients` [n + 1], how much of a small change of x at that layer arrives after the last one (1 at the end),
`size` and `verdict` (`vanished` below 1e-3, `large` above 1e3, else `stable`), `final` [8]; `axis` [1e-8, 1e8] and
`outside` [n + 1], which sizes the axis cannot show; `scalar` gain^n; `numbers` size, gradient, scalar.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.rules import MOST, RULES, WIDTH, draw, mean_factors
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.residual import stack, stack_backward

DEFAULT: dict[str, Any] = {"rule": "f", "gain": 0.5, "n": 30, "seed": 0}
AXIS = (1e-8, 1e8)


def run(state: dict, say: Say) -> dict:
    """One vector of 8 numbers through n layers, f(x) = gain W x."""
    values = State("stack", DEFAULT, state)
    rule, gain = values.choice("rule", tuple(RULES)), values.number("gain", 0.1, 4)
    n, seed = values.whole("n", 1, MOST), values.whole("seed", 0, 9999)
    x, matrices = draw(seed, n)
    states = stack(x, matrices, rule, gain)
    gradients = mean_factors(stack_backward(np.eye(WIDTH), states, matrices, rule, gain))
    sizes = np.linalg.norm(np.stack(states), axis=-1)
    size = float(sizes[-1])
    verdict = "vanished" if size < 1e-3 else "large" if size > 1e3 else "stable"
    numbers = {key: show.size(value) for key, value in
               (("size", size), ("gradient", gradients[0]), ("scalar", gain**n))}  # fmt: skip
    return show.plain(
        {
            "rules": RULES, "sizes": sizes, "gradients": gradients, "size": size, "verdict": verdict,
            "final": states[-1], "axis": AXIS, "outside": (sizes < AXIS[0]) | (sizes > AXIS[1]),
            "scalar": gain**n, "numbers": numbers,
            "text": say(verdict, n=n, **numbers),
        }
    )  # fmt: skip
