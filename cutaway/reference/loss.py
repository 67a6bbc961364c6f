"""Cross-entropy, its label smoothing and its gradient by hand."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from cutaway.errors import InputError
from cutaway.reference.functions import Array, log_softmax, real, softmax

IGNORED = -100


def token_losses(logits: ArrayLike, targets: ArrayLike, smoothing: float = 0.0, ignored: int = IGNORED) -> Array:
    """-sum_v t_v log softmax(logits)_v of each token, in nats; 0 where the target is `ignored`.

    logits [..., V], targets [...] of ids -> [...]. The target t is 1 at the id; with smoothing s it is 1 - s there
    plus s/V everywhere (Szegedy et al. 2015, arXiv:1512.00567).
    """
    logs, targets = log_softmax(logits), np.asarray(targets)
    kept = targets != ignored
    hit = np.take_along_axis(logs, np.where(kept, targets, 0)[..., None], -1)[..., 0]
    return np.where(kept, -(1 - smoothing) * hit - smoothing * logs.mean(-1), 0.0)


def count(targets: ArrayLike, ignored: int = IGNORED) -> int:
    """How many targets are scored. Raises InputError where none is: their mean would be 0/0."""
    n = int((np.asarray(targets) != ignored).sum())
    if n == 0:
        raise InputError("loss: every target is ignored, so there is nothing to average; give at least one token")
    return n


def cross_entropy(logits: ArrayLike, targets: ArrayLike, smoothing: float = 0.0, ignored: int = IGNORED) -> float:
    """The mean loss over all tokens that are scored, in nats: one sum by one count, also across micro-batches."""
    return float(token_losses(logits, targets, smoothing, ignored).sum() / count(targets, ignored))


def cross_entropy_gradient(
    logits: ArrayLike, targets: ArrayLike, smoothing: float = 0.0, ignored: int = IGNORED
) -> Array:
    """(softmax(logits) - t) / count for each scored token, 0 for the others. logits [..., V] -> [..., V]."""
    logits, targets = real(logits), np.asarray(targets)
    kept = (targets != ignored)[..., None]
    one_hot = np.arange(logits.shape[-1]) == targets[..., None]
    t = (1 - smoothing) * one_hot + smoothing / logits.shape[-1]
    return np.where(kept, softmax(logits) - t, 0.0) / count(targets, ignored)


def perplexity(mean_loss: float) -> float:
    """exp(loss): how many equally likely tokens the model hesitates between."""
    return math.exp(mean_loss)


def bits_per_byte(total_loss: float, n_bytes: int) -> float:
    """Summed loss in bits over the bytes of the text: comparable between tokenizers."""
    return total_loss / math.log(2) / n_bytes
