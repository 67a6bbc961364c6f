"""Whole models: a spec in, a module out."""

from __future__ import annotations

from typing import Any

import torch

from cutaway import spec
from cutaway.errors import InputError
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
    check_dtype(dtype)
    if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**64):
        raise InputError(f"seed: {seed!r}; give a whole number from 0 to 2^64 - 1")
    with torch.device("cpu" if seed is not None else "meta"):
        model = EncoderDecoder(record) if isinstance(record, spec.EncoderDecoder) else OneStack(record)
    model = model.to(dtype)
    if seed is not None:
        initialise(model, seed)
    return model


def check_dtype(dtype: Any) -> None:
    """Raise InputError for a type that no weight can have."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise InputError(f"dtype: {dtype!r} is no type of weights; give torch.float32, torch.bfloat16 or another")
