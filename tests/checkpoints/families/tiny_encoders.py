"""Tiny random encoders of transformers, and what ours must share with them: what the class gives."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.models import OneStack
from cutaway.parts.step import Given
from cutaway.tap import listening
from tests.checkpoints.families.tiny import batches, peer, told

SMALL = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 40, "pad_token_id": 0,
}  # fmt: skip


def theirs(model: torch.nn.Module, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> dict[str, Tensor]:
    return told(model, input_ids=ids, attention_mask=mask, **({} if types is None else {"token_type_ids": types}))


def ours(model: OneStack, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> dict[str, Tensor]:
    """The same of our model; one number a token stands in no axis of its own there."""
    heard: dict[str, Tensor] = {}
    with torch.no_grad(), listening(model, lambda name, x: heard.update({"pooled": x}), "head.pooled"):
        out = model(ids, Given(mask=mask, types=types))
    head = model.spec.head
    if isinstance(head, spec.ClassHead) and head.pool == "none" and head.n_classes == 1:
        out = out[..., 0]
    pooled = heard if isinstance(head, spec.VectorHead) and isinstance(head.pooler, spec.Transform) else {}
    return {"output": out} | pooled


def same_outputs(folder: Path, tolerance: float = 1e-5, sides: tuple[str, ...] = ("full", "one", "right")) -> OneStack:
    """Ours equals theirs on every batch, with token types too, up to `tolerance` of the largest number."""
    model, their = open_checkpoint(folder).load(), peer(folder)
    pad = json.loads((folder / "config.json").read_text())["pad_token_id"]
    for name, (ids, mask) in batches(model.spec.vocab_size, 20, pad).items():
        if name in sides:
            compare(name, ours(model, ids, mask), theirs(their, ids, mask), mask, tolerance)
    if model.spec.embedding.n_token_types > 1:
        ids, mask = batches(model.spec.vocab_size, 20, pad)["full"]
        types = (torch.arange(ids.shape[1]) > 7).long().expand(ids.shape)
        compare("types", ours(model, ids, mask, types), theirs(their, ids, mask, types), mask, tolerance)
    return model


def compare(name: str, got: dict[str, Tensor], want: dict[str, Tensor], mask: Tensor, tolerance: float) -> None:
    assert got.keys() == want.keys(), name
    for key, value in want.items():
        assert got[key].shape == value.shape, (name, key)
        real = mask == 1 if value.shape[:2] == mask.shape else ...
        worst = (got[key] - value)[real].abs().max() / value[real].abs().max()
        assert worst <= tolerance, (name, key, float(worst))
