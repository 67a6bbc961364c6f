"""One step of attention with a cache of keys and values."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


«given»
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


«yours»
"""
SOLUTION = (
    GIVEN
    + """\
def attend_next(x, cache, W_q, W_k, W_v):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    if cache is None:
        keys, values = k[None], v[None]
    else:
        keys, values = np.vstack([cache[0], k]), np.vstack([cache[1], v])
    weights = softmax(keys @ q / np.sqrt(len(q)))
    return weights @ values, (keys, values)
"""
)
STARTER = (
    GIVEN
    + """\
def attend_next(x, cache, W_q, W_k, W_v):
    «attend_next»
    return x, cache
"""
)
DRIVE = """\
import numpy as np


def drive(attend_next, xs, *weights):
    cache, outputs = None, []
    for x in xs:
        output, cache = attend_next(x, cache, *weights)
        outputs.append(output)
    if not isinstance(cache, (tuple, list)) or len(cache) != 2:
        raise TypeError("«pair»")
    keys, values = cache
    return np.array(outputs), np.array(keys), np.array(values)
"""


def _args(seed: int, length: int, width: int) -> tuple:
    return (numbers(seed, length, width), *(numbers(seed + i, width, width) for i in range(1, 4)))


JOINED = "np.vstack([cache[0], k]), np.vstack([cache[1], v])"

EXERCISE = Exercise(
    id="kv-cache",
    function="attend_next",
    signature="attend_next(x, cache, W_q, W_k, W_v)",
    starter=STARTER,
    solution=SOLUTION,
    drive=DRIVE,
    cases=(Case(_args(1, 1, 3)), Case(_args(11, 2, 3)), Case(_args(21, 5, 4))),
    mistakes=(
        Mistake("cache never grows", swap(SOLUTION, (JOINED, "cache"))),
        Mistake("cache forgotten", swap(SOLUTION, (JOINED, "k[None], v[None]"))),
        Mistake("queries cached", swap(SOLUTION, (JOINED, JOINED.replace("k]", "q]")), ("k[None], v", "q[None], v"))),
        Mistake(
            "tokens cached",
            swap(
                SOLUTION,
                ("k[None], v[None]", "x[None], x[None]"),
                (JOINED, "np.vstack([cache[0], x]), np.vstack([cache[1], x])"),
            ),
        ),
        Mistake("newest first", swap(SOLUTION, (JOINED, "np.vstack([k, cache[0]]), np.vstack([v, cache[1]])"))),
        Mistake("not scaled", swap(SOLUTION, (" / np.sqrt(len(q))", ""))),
        Mistake("scaled by the cache", swap(SOLUTION, ("np.sqrt(len(q))", "np.sqrt(len(keys))"))),
    ),
)
