"""Whole models: a spec in, a module out."""

from __future__ import annotations

import torch

from cutaway import spec
from cutaway.models.encoder_decoder import EncoderDecoder
from cutaway.models.init import initialise
from cutaway.models.one_stack import OneStack
from cutaway.models.stack import Stack

Transformer = OneStack | EncoderDecoder

__all__ = ["EncoderDecoder", "OneStack", "Stack", "Transformer", "build"]


def build(record: spec.Model, seed: int | None = None, dtype: torch.dtype = torch.float32) -> Transformer:
    """The model that a spec describes; with a seed its weights are drawn, without one they are left for a checkpoint.

    `model(ids)` with ids [B T] gives logits [B T V]; an encoder-decoder needs `Given(memory=model.encode(source))` too.
    Raises SpecError for parts that do not fit together.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 256])
    >>> other = cutaway.spec.set_values(model.spec, {"n_layers": 3, "positions.kind": "alibi"})
    >>> len(cutaway.build(other, seed=0).blocks)
    3
    """
    spec.check(record)
    with torch.device("cpu" if seed is not None else "meta"):
        model = EncoderDecoder(record) if isinstance(record, spec.EncoderDecoder) else OneStack(record)
    model = model.to(dtype)
    if seed is not None:
        initialise(model, seed)
    return model
