"""A stack of pre-norm decoder blocks with its final norm."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, swap

GIVEN = """\
import numpy as np

# Given: leave this part as it is.
W1 = np.array([[1.0, -1.0, 0.0, 1.0], [0.0, 1.0, -1.0, 1.0]])
b1 = np.array([0.0, 0.0, 1.0, -2.0])
W2 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])
b2 = np.array([0.0, 0.0])


def layer_norm(x, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + eps)


def causal_mask(length):
    return np.tril(np.ones((length, length), dtype=bool))  # True: may be seen


def attention(x, mask=None):
    scores = x @ x.T / np.sqrt(x.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ x


def ffn(x):
    return np.maximum(0, x @ W1 + b1) @ W2 + b2


# Yours.
"""
SOLUTION = (
    GIVEN
    + """\
def decoder(x, n_blocks):
    mask = causal_mask(len(x))
    for _ in range(n_blocks):
        x = x + attention(layer_norm(x), mask)
        x = x + ffn(layer_norm(x))
    return layer_norm(x)
"""
)
STARTER = (
    GIVEN
    + """\
def decoder(x, n_blocks):
    # n_blocks times: masked attention, then the FFN. Each reads a normalised copy of x, and its result joins x.
    # After the last block comes one LayerNorm more.
    return x
"""
)
ATTENTION, FFN, END = (
    "x = x + attention(layer_norm(x), mask)",
    "x = x + ffn(layer_norm(x))",
    "    return layer_norm(x)\n",
)
WIDE = {
    "W1": array([0, 0, 2, 0, 1, -2, 0, -1], [-2, 1, 0, -2, -1, 2, -2, 2], [2, -2, -2, 2, -2, -2, 2, 1],
                [0, -2, -1, 1, -1, 2, 0, 2]),
    "b1": array(-1, 0, -1, -1, 1, 0, 1, -1),
    "W2": array([-2, 2, 2, -1], [2, 0, 0, 0], [1, -2, 2, -1], [-1, 1, 2, 0], [2, 1, 1, 0], [1, -2, -2, 1],
                [0, 1, -1, 2], [0, -2, -1, 2]),
    "b2": array(0.5, 0, -0.5, 0),
}  # fmt: skip
WIDE_X = array([-2, 3, -3, 3], [-2, 3, 2, 1], [1, -1, 0, -3])

EXERCISE = Exercise(
    id="decoder",
    title="A decoder stack",
    function="decoder",
    signature="decoder(x, n_blocks)",
    prompt="Send `x` through `n_blocks` pre-norm decoder blocks and close with one LayerNorm. A block is masked "
    "attention, then the FFN: both read a normalised copy of `x`, and `x` grows by what they return. The attention has "
    "no weight matrices: Q, K and V are its input.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`x = x + attention(layer_norm(x), causal_mask(len(x)))` is the first sublayer.",
        "The second sublayer reads the x that the first one has changed.",
        "The final LayerNorm stands after the loop.",
    ),
    spies=("layer_norm",),
    cases=(
        Case("one token and one block", (array([0, 4]), 1)),
        Case("one token and two blocks", (array([0, 4]), 2)),
        Case("one token and three blocks", (array([0, 4]), 3)),
        Case("no block at all", (array([0, 4], [5, 1]), 0)),
        Case("two tokens", (array([2, 0], [0, 2]), 1)),
        Case("three tokens and two blocks", (array([2, 0], [0, 4], [3, 1]), 2)),
        Case("a token whose numbers are equal", (array([2, 0], [1, 1], [0, 2]), 1)),
        Case("wider tokens and other weights", (WIDE_X, 2), WIDE),
    ),
    mistakes=(
        Mistake(
            "post-norm",
            swap(SOLUTION, (ATTENTION, "x = layer_norm(x + attention(x, mask))"), (FFN, "x = layer_norm(x + ffn(x))")),
            "That is post-norm, LayerNorm(x + f(x)). Pre-norm is x + f(LayerNorm(x)).",
        ),
        Mistake(
            "norm on the sum",
            swap(SOLUTION, (ATTENTION, "x = layer_norm(x + attention(layer_norm(x), mask))"),
                 (FFN, "x = layer_norm(x + ffn(layer_norm(x)))")),
            "You normalise the sum as well. In a pre-norm block nothing touches x but the additions.",
        ),
        Mistake(
            "no mask",
            swap(SOLUTION, ("attention(layer_norm(x), mask)", "attention(layer_norm(x))")),
            "A token sees those after it. Give attention the causal mask.",
        ),
        Mistake(
            "same input for both",
            swap(SOLUTION, (ATTENTION, "h = layer_norm(x)"), (FFN, "x = x + attention(h, mask) + ffn(h)")),
            "Both sublayers read the same x. The FFN reads the x that attention's result was added to.",
        ),
        Mistake(
            "final norm in every block",
            swap(SOLUTION, (FFN, FFN + "\n        x = layer_norm(x)"), (END, "    return x\n")),
            "The final LayerNorm runs in every block. It comes once, after the loop.",
        ),
        Mistake(
            "no final norm",
            swap(SOLUTION, (END, "    return x\n")),
            "The final LayerNorm is missing: the stack ends with one.",
        ),
        Mistake(
            "no residual",
            swap(SOLUTION, ("x = x + attention", "x = attention"), ("x = x + ffn", "x = ffn")),
            "x is replaced by each sublayer. Add the result to x.",
        ),
        Mistake(
            "FFN without its norm",
            swap(SOLUTION, (FFN, "x = x + ffn(x)")),
            "The FFN reads x itself. It should read the LayerNorm of x.",
        ),
        Mistake(
            "one block",
            swap(SOLUTION, ("range(n_blocks)", "range(min(n_blocks, 1))")),
            "The block runs once. Run it n_blocks times, each on the x of the one before.",
        ),
    ),
)  # fmt: skip
