"""A model out of one GGUF file: its keys to a spec, its blocks to weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import described, gguf_of
from cutaway.checkpoints.gguf import GGUF, PLAIN, Field
from cutaway.checkpoints.gguf_keys import DERIVED, FACTORS
from cutaway.errors import CheckpointError

BOOKKEEPING = {
    "general.*": "bookkeeping",
    "tokenizer.*": "the tokenizer's",
    "quantize.*": "how the file was made",
    "split.*": "how the file was made",
    "*.rope.scaling.finetuned": "bookkeeping",
}


class GgufSource:
    """The tensors of an open file."""

    def __init__(self, file: GGUF) -> None:
        self.file, self.where = file, str(file.path)

    def names(self) -> Iterable[str]:
        return self.file.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self.file.tensors[name].shape

    def dtype(self, name: str) -> torch.dtype | None:
        """The type in which the file holds a tensor, None for blocks."""
        return PLAIN.get(self.file.tensors[name].kind.name)

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        return self.file.read(name, out)

    def drop(self) -> None:
        self.file.drop()


def read_spec(file: GGUF) -> tuple[Stack, Config]:
    """The spec that a file's keys describe, and what became of each of them."""
    values = {key: _plain(each) for key, each in file.fields.items()}
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        raise CheckpointError(f"{file.path}: general.architecture is missing; the file is no language model")
    kind = gguf_of(architecture, str(file.path))
    prefix = architecture + "."
    keys = {key.removeprefix(prefix): value for key, value in values.items()}
    n_rows = next((info.shape[0] for name, info in file.tensors.items() if name == "token_embd.weight"), None)
    derived = dict(zip(DERIVED, ("output.weight" not in file.tensors, n_rows), strict=True))
    factors = {key: file.read(name).tolist() for key, name in FACTORS.items() if name in file.tensors}
    config = Config(keys | derived | factors, str(file.path), lambda: file.tensors)
    name = str(values.get("general.name", file.path.stem))
    record = described(lambda config: kind.to_spec(config).replace(name=name, generation=_generation(config)), config)
    config.ignore(BOOKKEEPING | dict.fromkeys(derived, "derived"))
    config.finish()
    return record, config


def _generation(config: Config) -> spec.Generation:
    """The ids that end a text and fill a row."""
    end, turn, pad = (f"tokenizer.ggml.{role}_token_id" for role in ("eos", "eot", "padding"))
    stops = dict.fromkeys(config.integer(key) for key in (end, turn) if config.has(key))
    return spec.Generation(stop_ids=tuple(stops), pad_id=config.integer(pad) if config.has(pad) else "none")


def _plain(field: Field) -> Any:
    """The value of a field; a number of 32 bits as the shortest decimal that means it (1e-05, not 9.99999974e-06)."""
    return float(str(np.float32(field.value))) if field.type == "FLOAT32" else field.value
