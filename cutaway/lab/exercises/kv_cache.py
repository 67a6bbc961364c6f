"""One step of attention with a cache of keys and values."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, numbers, swap

GIVEN = """\
import numpy as np


# Given: leave this part as it is.
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


# Yours.
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
    # x (D,): the newest token. cache: None at first, then (keys, values) of all earlier tokens, each (n, D).
    # Return the token's output (D,) and the cache with this token in it.
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
        raise TypeError("return two things: the output and the cache, a pair (keys, values)")
    keys, values = cache
    return np.array(outputs), np.array(keys), np.array(values)
"""


def _args(seed: int, length: int, width: int) -> tuple:
    return (numbers(seed, length, width), *(numbers(seed + i, width, width) for i in range(1, 4)))


JOINED = "np.vstack([cache[0], k]), np.vstack([cache[1], v])"

EXERCISE = Exercise(
    id="kv-cache",
    title="A KV cache",
    function="attend_next",
    signature="attend_next(x, cache, W_q, W_k, W_v)",
    prompt="Tokens come one at a time. Compute q, k and v of the newest token `x` alone, put its k and v behind those "
    "in the cache, and attend to all of them. Return the output and the new cache `(keys, values)`. No mask is needed: "
    "only the past is there.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`k[None]` turns one vector (D,) into a table of one row (1, D).",
        "`np.vstack([table, row])` puts a row below a table.",
        "With one query the scores are `keys @ q`: one a cached token.",
    ),
    drive=DRIVE,
    cases=(
        Case("a first token", _args(1, 1, 3)),
        Case("two tokens", _args(11, 2, 3)),
        Case("five tokens", _args(21, 5, 4)),
    ),
    mistakes=(
        Mistake(
            "cache never grows",
            swap(SOLUTION, (JOINED, "cache")),
            "The newest token is not in the cache it attends to: put its k and v in first. A token sees itself.",
        ),
        Mistake(
            "cache forgotten",
            swap(SOLUTION, (JOINED, "k[None], v[None]")),
            "The earlier tokens are gone: your cache holds the newest one alone.",
        ),
        Mistake(
            "queries cached",
            swap(SOLUTION, (JOINED, JOINED.replace("k]", "q]")), ("k[None], v", "q[None], v")),
            "You store q. An old query is never needed again; keys and values are.",
        ),
        Mistake(
            "tokens cached",
            swap(SOLUTION, ("k[None], v[None]", "x[None], x[None]"),
                 (JOINED, "np.vstack([cache[0], x]), np.vstack([cache[1], x])")),
            "You store x itself. Store x W_k and x W_v, so that they are computed only once.",
        ),
        Mistake(
            "newest first",
            swap(SOLUTION, (JOINED, "np.vstack([k, cache[0]]), np.vstack([v, cache[1]])")),
            "The newest token stands in front of the older ones. Put it behind them: the cache keeps the order.",
        ),
        Mistake(
            "not scaled",
            swap(SOLUTION, (" / np.sqrt(len(q))", "")),
            "The scores are not divided by the root of their width.",
        ),
        Mistake(
            "scaled by the cache",
            swap(SOLUTION, ("np.sqrt(len(q))", "np.sqrt(len(keys))")),
            "You divide by the root of the number of cached tokens. It is the root of the width, len(q).",
        ),
    ),
)  # fmt: skip
