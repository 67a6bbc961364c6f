"""From the last hidden states to logits, classes or vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.embedding import Table
from cutaway.parts.functions import ACTIVATIONS, soft_cap
from cutaway.parts.linear import Linear, product
from cutaway.parts.norms import normed
from cutaway.parts.step import Step
from cutaway.tap import tap, wanted

FIRST = spec.VectorHead(pool="first")


class Transform(nn.Module):
    """norm(activation(W h + b))."""

    def __init__(self, record: spec.Transform, d_model: int, norm: nn.Module | None) -> None:
        super().__init__()
        self.width = spec.transform_width(record, d_model)
        self.activation = ACTIVATIONS[record.activation]
        self.dense = Linear(d_model, self.width, record.bias)
        self.norm = norm

    def forward(self, h: Float[Tensor, "*B D"]) -> Float[Tensor, "*B W"]:
        return normed(self.norm, self.activation(self.dense(h)))


class TokenHead(nn.Module):
    """cap(logit_factor * (transform(input_factor * h) W^T + b)): one number a token of the vocabulary.

    With `table` the matrix W is the embedding's, read here and owned there (Press and Wolf 2016, arXiv:1608.05859).
    """

    def __init__(
        self, record: spec.LanguageHead | spec.MaskedHead, d_model: int, vocab_size: int, transform: Transform | None,
        table: Table | None,
    ) -> None:  # fmt: skip
        super().__init__()
        width = d_model if transform is None else transform.width
        self.transform, self.tied = transform, (table,)
        self.logit_factor, self.input_factor, self.soft_cap = record.logit_factor, 1.0, None
        if isinstance(record, spec.LanguageHead):
            self.input_factor = d_model**-0.5 if isinstance(record.input_factor, str) else record.input_factor
            self.soft_cap = None if record.soft_cap == "none" else record.soft_cap
        self.weight = nn.Parameter(torch.empty(vocab_size, width)) if table is None else None
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if record.bias else None

    def forward(self, h: Float[Tensor, "B T D"], step: Step) -> Float[Tensor, "B T V"]:
        h = h * self.input_factor if self.input_factor != 1.0 else h
        h = h if self.transform is None else self.transform(h)
        table = self.tied[0]
        matrix = self.weight if table is None else table.weight
        assert matrix is not None
        logits = product(h, matrix, self.bias)
        logits = logits * self.logit_factor if self.logit_factor != 1.0 else logits
        return tap(self, "logits", soft_cap(logits, self.soft_cap))


class ClassHead(nn.Module):
    """W transform(pooled h) + b: n_classes numbers a row, or a token where nothing is pooled."""

    def __init__(self, record: spec.ClassHead, d_model: int, transform: Transform | None) -> None:
        super().__init__()
        self.record, self.transform = record, transform
        self.projection = Linear(d_model if transform is None else transform.width, record.n_classes, record.bias)

    def forward(self, h: Float[Tensor, "B T D"], step: Step) -> Tensor:
        pooled = tap(self, "pooled", pool(h, self.record, step))
        pooled = pooled if self.transform is None else self.transform(pooled)
        return tap(self, "logits", self.projection(pooled))


class VectorHead(nn.Module):
    """The states themselves, pooled to a row and made of length 1 where the record says so.

    The pooler works beside them, and only for a listener.
    """

    def __init__(self, record: spec.VectorHead, transform: Transform | None, pooler: Transform | None) -> None:
        super().__init__()
        self.record, self.transform, self.pooler = record, transform, pooler

    def forward(self, h: Float[Tensor, "B T D"], step: Step) -> Tensor:
        if self.pooler is not None and wanted(self, "pooled"):
            tap(self, "pooled", self.pooler(pool(h, FIRST, step)))
        pooled = pool(h, self.record, step)
        pooled = pooled if self.transform is None else self.transform(pooled)
        return tap(self, "vectors", F.normalize(pooled, dim=-1) if self.record.normalise else pooled)


def pool(h: Float[Tensor, "B T D"], record: spec.ClassHead | spec.VectorHead, step: Step) -> Tensor:
    """One state a row: the first real token's, the mean over real tokens, the last real one's or the last eos's."""
    if record.pool == "none":
        return h
    real = readable(record, step)
    if record.pool == "mean":
        weight = real.to(h.dtype)[..., None]
        return (h * weight).sum(1) / weight.sum(1)
    column = torch.arange(h.shape[1], device=h.device)
    if record.pool == "first":
        index = torch.where(real, column, h.shape[1]).amin(1)
    else:
        index = torch.where(real, column, -1).amax(1)
    return h[torch.arange(len(h), device=h.device), index]


def readable(record: spec.ClassHead | spec.VectorHead, step: Step) -> Bool[Tensor, "B T"]:
    """The tokens that a pool may take; raises InputError for a row without one. Compiled code does not look."""
    real = step.query.owners >= 0
    if record.pool == "eos":
        real = real & (step.ids == record.eos_id)
    if not torch.compiler.is_compiling() and not bool(real.any(1).all()):
        what = f"the end token {record.eos_id}" if record.pool == "eos" else "a real token"
        raise InputError(f"pool {record.pool}: a row without {what}; give every row one")
    return real
