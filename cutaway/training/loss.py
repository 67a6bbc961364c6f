"""Cross-entropy with label smoothing, as `reference.loss` defines it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from cutaway.errors import InputError

IGNORED = -100
"""The target of a token that is not scored."""


def token_losses(
    logits: Float[Tensor, "*B V"], targets: Int[Tensor, "*B"], smoothing: float = 0.0
) -> Float[Tensor, "*B"]:
    """-sum_v t_v log softmax(logits)_v of each token, in nats and in float32 at least; 0 where the target is IGNORED.

    The target t is 1 at the id; with smoothing s it is 1 - s there plus s/V everywhere (Szegedy et al. 2015,
    arXiv:1512.00567). Raises InputError for targets of another shape, or that are no ids of the vocabulary.
    """
    _check(targets, logits)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    rows = wide.reshape(-1, logits.shape[-1])
    losses = F.cross_entropy(
        rows, targets.reshape(-1), ignore_index=IGNORED, reduction="none", label_smoothing=smoothing
    )
    return losses.view(targets.shape)


def cross_entropy(
    logits: Float[Tensor, "*B V"], targets: Int[Tensor, "*B"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The mean loss over all tokens that are scored. Raises InputError where none is: their mean would be 0/0.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> round(float(cross_entropy(logits, torch.tensor([0, IGNORED]))), 4)
    0.1269
    """
    n_scored = (targets != IGNORED).sum()
    if n_scored == 0:
        raise InputError("loss: every target is ignored, so there is nothing to average; give at least one token")
    return token_losses(logits, targets, smoothing).sum() / n_scored


def _check(targets: Tensor, logits: Tensor) -> None:
    n_ids = logits.shape[-1]
    if targets.shape != logits.shape[:-1] or targets.dtype != torch.int64:
        shape = tuple(targets.shape)
        raise InputError(f"targets: shape {shape} of {targets.dtype}; give torch.int64 of {tuple(logits.shape[:-1])}")
    if torch.compiler.is_compiling():
        return
    scored = targets[targets != IGNORED]
    if scored.numel() and (int(scored.min()) < 0 or int(scored.max()) >= n_ids):
        wrong = int(scored.min()) if int(scored.min()) < 0 else int(scored.max())
        raise InputError(f"targets: {wrong} is not in the vocabulary of {n_ids} tokens; {IGNORED} leaves a token out")
