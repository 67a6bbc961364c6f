"""Our own format: a folder with `spec.toml`, `model.safetensors` under our names, and the tokenizer's files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.fill import Filled, fill
from cutaway.checkpoints.rules import same
from cutaway.errors import CheckpointError
from cutaway.models import Transformer, build

SPEC, WEIGHTS = "spec.toml", "model.safetensors"


class SafetensorsFolder:
    """Tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json` names, no others."""

    def __init__(self, folder: Path) -> None:
        self.where = str(folder)
        index = folder / "model.safetensors.index.json"
        self.files: dict[str, Path] = {}
        self.open: dict[Path, safe_open] = {}
        if index.is_file():
            self._read_index(folder, index)
        else:
            path = folder / WEIGHTS
            if not path.is_file():
                raise CheckpointError(f"{folder}: no {WEIGHTS} and no index of shards; a model's weights are needed")
            self.files = dict.fromkeys(self._open(path).keys(), path)

    def names(self) -> list[str]:
        return list(self.files)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._open(self.files[name]).get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype | None:
        return DTYPES.get(self._open(self.files[name]).get_slice(name).get_dtype())

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        tensor = self._open(self.files[name]).get_tensor(name)
        return tensor if out is None else out.copy_(tensor)

    def _open(self, path: Path) -> safe_open:
        if path not in self.open:
            try:
                self.open[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError, ValueError) as error:
                raise CheckpointError(f"{path}: not a sound safetensors file ({error}); fetch it again") from None
        return self.open[path]

    def _read_index(self, folder: Path, index: Path) -> None:
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            shards = {name: str(shard) for name, shard in table.items()}
        except (ValueError, KeyError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{index}: not an index of shards ({error!r}); fetch it again") from None
        held: dict[str, set[str]] = {}
        for shard in sorted(set(shards.values())):
            if os.path.basename(shard) != shard or shard in ("", ".", ".."):
                raise CheckpointError(f"{index}: shard {shard!r} is not a file name in this folder; it is not read")
            if not (folder / shard).is_file():
                raise CheckpointError(f"{index}: shard {shard} is missing; fetch the model again")
            held[shard] = set(self._open(folder / shard).keys())
        for name, shard in shards.items():
            if name not in held[shard]:
                raise CheckpointError(f"{index}: tensor {name} is not in {shard} as it says; fetch the model again")
            self.files[name] = folder / shard


DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def save(model: Transformer, folder: str | Path) -> None:
    """Write spec and weights; each tensor once, under its own name. What was there under these names is replaced."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
        partial = folder / (WEIGHTS + ".partial")
        save_file(weights, partial, metadata={"format": "pt"})
        (folder / SPEC).write_text(spec.to_toml(model.spec), encoding="utf-8")
        os.replace(partial, folder / WEIGHTS)
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be written ({error.strerror or error})") from None


def load(folder: str | Path, dtype: torch.dtype = torch.float32) -> tuple[Transformer, Filled]:
    """The model that `save` wrote, in `dtype`."""
    folder = Path(folder)
    model = build(spec.load(folder / SPEC))
    rules = [same(name, name) for name, _ in model.named_parameters()]
    report = fill(model, SafetensorsFolder(folder), rules, dtype)
    return model.eval(), report
