"""Cross-entropy and its gradient."""

from __future__ import annotations

from cutaway.lab.exercises.exercise import Case, Exercise, Mistake, array, numbers, swap

SOLUTION = """\
import numpy as np


def cross_entropy(logits, targets):
    rows = np.arange(len(targets))
    logits = logits - logits.max(axis=-1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    loss = -log_p[rows, targets].mean()
    gradient = p.copy()
    gradient[rows, targets] -= 1
    return loss, gradient / len(targets)
"""
STARTER = """\
import numpy as np


def cross_entropy(logits, targets):
    # logits (n, V), targets (n,): the id of the right token of each row.
    # Return the mean of -log(probability of the right token) and its gradient for the logits, (n, V).
    return 0.0, np.zeros_like(logits)
"""

EXERCISE = Exercise(
    id="cross-entropy",
    title="Cross-entropy and its gradient",
    function="cross_entropy",
    signature="cross_entropy(logits, targets)",
    prompt="For `logits` of shape (n, V) and `targets` of n ids return two things: the mean over the rows of minus the "
    "natural logarithm of the right token's probability, and the gradient of that mean for the logits, (n, V). "
    "Logits may be large.",
    starter=STARTER,
    solution=SOLUTION,
    hints=(
        "`p[np.arange(n), targets]` picks one probability a row.",
        "The gradient of one row is its softmax, with 1 subtracted at the right token.",
        "The loss is a mean over n rows, so the gradient is divided by n.",
        "log softmax is `logits - log(sum(exp(logits)))`; subtract each row's maximum before exp.",
    ),
    cases=(
        Case("two rows of three", (array([2, 1, 0], [0, 0, 3]), [0, 1])),
        Case("logits that are all equal", (array([1, 1, 1, 1], [5, 5, 5, 5], [0, 0, 0, 0]), [3, 0, 2])),
        Case("other numbers", (numbers(1, 4, 4), [1, 0, 3, 3])),
        Case("logits in the thousands", (array([3000, 0], [0, 2000]), [0, 0])),
    ),
    mistakes=(
        Mistake(
            "sum for mean",
            swap(SOLUTION, (".mean()", ".sum()"), (" / len(targets)", "")),
            "You add the rows up. Take their mean, in the loss and so in the gradient.",
        ),
        Mistake(
            "gradient not divided",
            swap(SOLUTION, (" / len(targets)", "")),
            "The loss is right. Its gradient is n times too large: the mean divides it by the number of rows.",
        ),
        Mistake(
            "gradient's sign",
            swap(SOLUTION, ("gradient / len", "-gradient / len")),
            "The loss is right. Its gradient has the wrong sign: it is the softmax minus the right token.",
        ),
        Mistake(
            "nothing subtracted",
            swap(SOLUTION, ("    gradient[rows, targets] -= 1\n", "")),
            "The gradient is the softmax alone. Subtract 1 at each row's right token.",
        ),
        Mistake("loss's sign", swap(SOLUTION, ("-log_p", "log_p")), "The loss is negative. It is minus the logarithm."),
        Mistake(
            "base 2",
            swap(SOLUTION, (".mean()", ".mean() / np.log(2)")),
            "Your loss is in bits: log2. Use the natural logarithm, np.log.",
        ),
        Mistake(
            "overflow",
            swap(SOLUTION, ("    logits = logits - logits.max(axis=-1, keepdims=True)\n", "")),
            "exp of a large logit is infinite, and nan follows. Subtract each row's maximum first.",
        ),
        Mistake(
            "log of 0",
            swap(
                SOLUTION, ("log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))", "log_p = np.log(p)")
            ),
            "A probability too small for a number became 0, and log 0 is infinite. Take log softmax as one formula.",
        ),
        Mistake(
            "softmax over the rows",
            swap(SOLUTION, ("axis=-1", "axis=0")),
            "Your softmax runs over the rows of the batch. Each row is one distribution: axis=-1.",
        ),
    ),
)
