"""Our own format: a folder with `spec.toml`, `model.safetensors` under our names, and the tokenizer's files."""

from __future__ import annotations

from pathlib import Path

import torch

from cutaway import spec
from cutaway.checkpoints.fill import Match, fill
from cutaway.checkpoints.rules import same
from cutaway.checkpoints.safetensors_write import outputs, write_folder
from cutaway.checkpoints.weights import open_weights
from cutaway.errors import CheckpointError
from cutaway.models import Transformer, build

SPEC = "spec.toml"


def save(model: Transformer, folder: str | Path) -> None:
    """Write spec and weights; each tensor once, under its own name. What was there under these names is replaced."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_folder(folder, outputs(dict(model.named_parameters()))[0])
        (folder / SPEC).write_text(spec.to_toml(model.spec), encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be written ({error.strerror or error})") from None


def load(folder: str | Path, dtype: torch.dtype = torch.float32) -> tuple[Transformer, Match]:
    """The model that `save` wrote, in `dtype`."""
    folder = Path(folder)
    model = build(spec.load(folder / SPEC))
    rules = [same(name, name) for name, _ in model.named_parameters()]
    report = fill(model, open_weights(folder), rules, dtype)
    return model.eval(), report
