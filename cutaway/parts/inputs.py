"""What a model may be handed: rows in one tensor, and all of it checked before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.step import Given, Memory

WHOLE = (torch.int64, torch.int32)


def check_ids(ids: Any, vocab_size: int) -> None:
    """Ids are [B, T] whole numbers within the vocabulary; a batch may be empty, a row may not."""
    if not isinstance(ids, Tensor):
        raise InputError(f"ids: a {type(ids).__name__}; give a tensor of shape [rows, tokens]")
    if ids.dim() == 1:
        raise InputError(f"ids: shape {tuple(ids.shape)}; give [rows, tokens], for one row ids[None]")
    if ids.dim() != 2 or ids.dtype not in WHOLE:
        raise InputError(f"ids: shape {tuple(ids.shape)} of {ids.dtype}; give torch.int64 of shape [rows, tokens]")
    if ids.shape[1] == 0:
        raise InputError("ids: no tokens; give at least one")
    wrong = _outside(ids, vocab_size)
    if wrong is not None:
        raise InputError(f"ids: {wrong} is not in the vocabulary of {vocab_size} tokens")


def check_device(given: Tensor, weight: Tensor, name: str) -> None:
    """What a model is handed lies where its weights lie."""
    if given.device == weight.device:
        return
    if weight.device.type == "meta":
        raise InputError(f"{name}: the model's weights are not filled; build it with a seed, or load a checkpoint")
    raise InputError(
        f'{name}: on {given.device}, but the model is on {weight.device}; give `{name}.to("{weight.device}")`'
    )


def check_images(images: Any, record: spec.PatchEmbedding) -> None:
    """Images are [B, C, H, W] floating-point numbers of the sizes that the patches cut up."""
    if not isinstance(images, Tensor):
        raise InputError(f"images: a {type(images).__name__}; give a tensor of shape [images, channels, height, width]")
    if images.dim() != 4 or images.shape[1:] != record.sizes or not images.is_floating_point():
        raise InputError(
            f"images: shape {tuple(images.shape)} of {images.dtype}; give floating-point numbers of shape "
            f"[images, {', '.join(map(str, record.sizes))}]"
        )


def check_given(given: Given, ids: Tensor, n_token_types: int) -> None:
    """What is given about ids fits them; a model without token types is given none or zeros."""
    rows, tokens = (ids.shape[0],), tuple(ids.shape)
    if given.mask is not None:
        _fits(given.mask, "mask", (tokens,), whole=False)
        if not torch.compiler.is_compiling() and not bool(((given.mask == 0) | (given.mask == 1)).all()):
            raise InputError("mask: numbers other than 0 and 1; give 1 for real tokens and 0 for padding")
    if given.types is not None:
        _fits(given.types, "types", (tokens,))
        wrong = _outside(given.types, max(n_token_types, 1))
        if wrong is not None:
            raise InputError(f"types: {wrong}, but the model has {n_token_types} token types; count them from 0")
    for name, shapes in (("owners", (tokens,)), ("prefix", (rows,)), ("lengths", (rows, tokens))):
        value = getattr(given, name)
        if value is not None:
            _fits(value, name, shapes)


def check_memory(memory: Memory | None, ids: Tensor, d_model: int) -> None:
    """An encoder's output has a row for each row of ids, and the width of the decoder."""
    if memory is None:
        return
    rows, _, width = memory.states.shape
    if (rows, width) != (len(ids), d_model):
        raise InputError(
            f"memory: {rows} rows of width {width}, but the ids have {len(ids)} rows and the model is {d_model} wide; "
            "give what this model's `encode` makes of as many sources"
        )


def padded(
    rows: Sequence[Sequence[int]], pad_id: int | None, device: torch.device, side: str = "left"
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"] | None]:
    """Rows as one tensor and its mask; no mask where they are of one length."""
    length = max(len(row) for row in rows)
    filled = [[pad_id or 0] * (length - len(row)) for row in rows]
    whole = [[*pad, *row] if side == "left" else [*row, *pad] for row, pad in zip(rows, filled, strict=True)]
    ids = torch.tensor(whole, dtype=torch.long, device=device)
    if all(len(row) == length for row in rows):
        return ids, None
    column = torch.arange(length, device=device)
    n_real = torch.tensor([len(row) for row in rows], device=device)[:, None]
    return ids, column >= length - n_real if side == "left" else column < n_real


def _fits(value: Any, name: str, shapes: tuple[tuple[int, ...], ...], whole: bool = True) -> None:
    if not isinstance(value, Tensor):
        raise InputError(f"{name}: a {type(value).__name__}; give a tensor")
    if tuple(value.shape) not in shapes:
        fitting = " or ".join(map(str, shapes))
        raise InputError(f"{name}: shape {tuple(value.shape)}, but the ids ask for {fitting}")
    if whole and value.dtype not in WHOLE:
        raise InputError(f"{name}: {value.dtype}; give whole numbers, torch.int64")


def _outside(values: Tensor, n: int) -> int | None:
    """A value that is not among 0 .. n - 1, if there is one; compiled code does not look."""
    if not values.numel() or torch.compiler.is_compiling():
        return None
    low, high = (int(x) for x in values.aminmax())
    return low if low < 0 else high if high >= n else None
