"""Our own format: a folder with `spec.toml`, `model.safetensors` under our names, and the tokenizer's files."""

from __future__ import annotations

from pathlib import Path

from cutaway import spec
from cutaway.checkpoints.safetensors_write import outputs, write_folder
from cutaway.errors import CheckpointError
from cutaway.models import Transformer

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
