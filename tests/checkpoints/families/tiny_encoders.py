"""Tiny random encoders of transformers, and what ours must share with them: what the class gives, and the way out."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.models import OneStack
from cutaway.parts.step import Given
from cutaway.tap import listening
from tests.checkpoints.families.tiny import peer

SMALL = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 40, "pad_token_id": 0,
}  # fmt: skip


def batches(pad: int, vocab_size: int, length: int = 20) -> dict[str, tuple[Tensor, Tensor]]:
    """Ids and masks, padding filled with its id: none, one token, on the right and on the left."""
    ids = torch.randint(4, vocab_size, (3, length), generator=torch.Generator().manual_seed(1))
    lengths, column = torch.tensor([[length], [length // 2], [1]]), torch.arange(length)
    right, left = (column < lengths).long(), (column >= length - lengths).long()
    return {
        "full": (ids, torch.ones_like(ids)),
        "one": (ids[:, :1], torch.ones_like(ids[:, :1])),
        "right": (torch.where(right == 1, ids, pad), right),
        "left": (torch.where(left == 1, ids, pad), left),
    }


def theirs(model: torch.nn.Module, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> dict[str, Tensor]:
    """What a class gives: its logits, classes, the two ends of an answer, or its states and what its pooler makes."""
    more = {} if types is None else {"token_type_ids": types}
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask, **more)
    if "start_logits" in out:
        return {"output": torch.stack((out.start_logits, out.end_logits), -1)}
    if "logits" not in out:
        pooled = out.get("pooler_output")
        return {"output": out.last_hidden_state} | ({} if pooled is None else {"pooled": pooled})
    return {"output": out.logits}


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
    for name, (ids, mask) in batches(pad, model.spec.vocab_size).items():
        if name in sides:
            compare(name, ours(model, ids, mask), theirs(their, ids, mask), mask, tolerance)
    if model.spec.embedding.n_token_types > 1:
        ids, mask = batches(pad, model.spec.vocab_size)["full"]
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


def round_trip(folder: Path, out: Path) -> None:
    """In, out, in again: one spec, and a folder in which transformers finds the same model."""
    convert(folder, "hf", out)
    record, again = (hf.read_spec(each)[0] for each in (folder, out))
    assert again.replace(name=record.name) == record
    pad, vocab_size = record.generation.pad_id, record.vocab_size
    before, after = peer(folder), peer(out)
    assert sum(p.numel() for p in after.parameters()) == sum(p.numel() for p in before.parameters())
    ids, mask = batches(pad, vocab_size)["right"]
    want, got = theirs(before, ids, mask), theirs(after, ids, mask)
    assert all(torch.equal(got[key], want[key]) for key in want)
