"""Tiny random models of transformers, and what ours must share with them: logits, greedy text, and the way back out."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.generation import generate
from cutaway.models import Transformer
from cutaway.models.example import example
from cutaway.parts.step import Given
from tests import adapter

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
"""Ids for a small vocabulary."""


def tiny(model_class: type, config: object, folder: Path, seed: int = 0, **saving: object) -> Path:
    """A folder with a model of `model_class` whose every weight is random: no bias is 0 and no norm the identity."""
    torch.manual_seed(seed)
    model = model_class(config).eval()
    stored = model.state_dict()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name in stored and tensor.is_floating_point():  # buffers that are computed are not stored
                tensor.add_(0.1 * torch.randn(tensor.shape))
    model.save_pretrained(folder, **saving)
    return folder


def rewrite(folder: Path, drop: tuple[str, ...] = (), **changes: object) -> Path:
    """Edit config.json: the older layouts are written so, as the peer writes only its newest."""
    path = folder / "config.json"
    data = {key: value for key, value in json.loads(path.read_text()).items() if key not in drop}
    path.write_text(json.dumps(data | changes))
    return folder


def peer(folder: Path, **options: object) -> torch.nn.Module:
    """The folder opened by transformers, in float32."""
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    return getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, **options).eval()


def batches(vocab_size: int, length: int, pad: int = TOKENS["pad_token_id"]) -> dict[str, tuple[Tensor, Tensor]]:
    """Ids and masks: no padding, one token, padding on the left and on the right."""
    ids = torch.randint(3, vocab_size, (3, length), generator=torch.Generator().manual_seed(1))
    lengths, column = torch.tensor([[length], [length // 2], [1]]), torch.arange(length)
    masks = {
        "full": torch.ones_like(ids),
        "left": (column >= length - lengths).long(),
        "right": (column < lengths).long(),
    }
    rows = {name: (ids.where(mask == 1, pad), mask) for name, mask in masks.items()}
    return rows | {"one": (ids[:, :1], masks["full"][:, :1])}


def told(model: torch.nn.Module, **given: Tensor) -> dict[str, Tensor]:
    """What a class gives: its logits, classes, the two ends of an answer, or its states and what its pooler makes."""
    with torch.no_grad():
        out = model(**given)
    if "start_logits" in out:
        return {"output": torch.stack((out.start_logits, out.end_logits), -1)}
    if "logits" in out:
        return {"output": out.logits}
    pooled = out.get("pooler_output")
    return {"output": out.last_hidden_state} | ({} if pooled is None else {"pooled": pooled})


def their_logits(model: torch.nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Logits, or states of a model without a head; positions count from the first real token, as in its generate."""
    given = {"input_ids": ids, "attention_mask": mask}
    if "position_ids" in inspect.signature(model.forward).parameters:
        given["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return told(model, **given)["output"]


def same_logits(folder: Path, tolerance: float = 1e-5, length: int = 24, **options: object) -> Transformer:
    """Ours equals theirs on every batch, up to `tolerance` of the largest logit; returns our model."""
    model, theirs = open_checkpoint(folder).load(), peer(folder, **options)
    for name, (ids, mask) in batches(model.spec.vocab_size, length).items():
        want = their_logits(theirs, ids, mask)
        with torch.no_grad():
            got = model(ids, Given(mask=mask))
        assert got.shape == want.shape
        real = mask == 1 if want.shape[:2] == ids.shape else ...
        worst = (got - want)[real].abs().max() / want[real].abs().max()
        assert worst <= tolerance, (name, float(worst))
    return model


def same_states(folder: Path, tolerance: float = 1e-5) -> None:
    """The states after the embedding and each layer, as the checker of the handed cases asks for them, equal theirs."""
    ids = batches(hf.read_spec(folder)[0].vocab_size, 20)["full"][0]
    with torch.no_grad():
        want = peer(folder)(input_ids=ids, output_hidden_states=True).hidden_states
    got = adapter.hidden(adapter.load(str(folder)), ids.numpy())
    for ours, theirs in zip(got, want, strict=True):
        assert np.abs(ours - theirs.numpy()).max() <= tolerance * theirs.abs().max()


def same_text(folder: Path, n: int = 12, **options: object) -> None:
    """Greedy continuations of three prompts, alone and in one batch, equal theirs of each alone."""
    model, theirs = open_checkpoint(folder).load(), peer(folder, **options)
    prompts = [ids[:n].tolist() for ids, n in zip(batches(model.spec.vocab_size, 9)["full"][0], (1, 6, 9), strict=True)]
    want = [theirs.generate(torch.tensor([ids]), max_new_tokens=n, do_sample=False)[0, len(ids) :] for ids in prompts]
    choice = model.spec.generation.replace(max_tokens=n)
    assert [generate(model, [ids], choice).ids[0] for ids in prompts] == [ids.tolist() for ids in want]
    assert generate(model, prompts, choice).ids == [ids.tolist() for ids in want]


def round_trip(folder: Path, out: Path) -> None:
    """In, out, in again: one spec, and a folder in which transformers finds equal weights and gives the same."""
    record, data = hf.read_spec(folder)[0], json.loads((folder / "config.json").read_text())
    written = convert(folder, "hf", out)
    assert written.label == data["model_type"] and not written.notes
    assert hf.read_spec(out)[0].replace(name=record.name) == record
    old, new = open_checkpoint(folder), open_checkpoint(out)
    assert old.shapes == new.shapes and all(torch.equal(old.read(name), new.read(name)) for name in old.shapes)
    if isinstance(record, spec.ImageEncoder):
        given = {"pixel_values": example(record, 0)}
    else:
        vocab_size = min(stack.vocab_size for stack in spec.stacks(record).values())
        ids, mask = batches(vocab_size, 16, data["pad_token_id"])["right"]
        given = {"input_ids": ids, "attention_mask": mask}
        if isinstance(record, spec.EncoderDecoder):
            given["decoder_input_ids"] = ids
    want, got = told(peer(folder), **given), told(peer(out), **given)
    assert want.keys() == got.keys()
    near = 1e-6 if isinstance(record, spec.Decoder) else 0.0  # GELU goes by several names, whose formulas round apart
    assert all((got[name] - x).abs().max() <= near * x.abs().max() for name, x in want.items())


def both_ways(model_class: type, config: object, path: Path) -> Transformer:
    """Logits, greedy text and the way out and back in, all equal transformers' own; returns our model."""
    folder = tiny(model_class, config, path / "in")
    model = same_logits(folder)
    if hasattr(model_class, "generate") and model_class.can_generate():
        same_text(folder)
    round_trip(folder, path / "out")
    return model
