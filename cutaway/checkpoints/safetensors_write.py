"""Writing safetensors: a tensor at a time, tensors that share memory once, and large models in shards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cutaway.checkpoints.mapped import replacing
from cutaway.checkpoints.safetensors import DTYPES, INDEX, SINGLE
from cutaway.errors import CheckpointError

NAMES = {dtype: name for name, dtype in DTYPES.items()}
SHARD_BYTES = 5 << 30


@dataclass(frozen=True)
class Output:
    """A tensor to write. `data` gives it when its turn comes, so only one needs to be in memory."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    data: Callable[[], Tensor]

    @property
    def n_bytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


def outputs(tensors: Mapping[str, Tensor]) -> tuple[list[Output], dict[str, str]]:
    """What to write of tensors in memory: each of those that share all their memory once, under the first name.

    The second answer tells for each name left out where it is kept: metadata for `write_file`, from which the reader
    gives the tensor under both names.
    """
    kept: dict[object, str] = {}
    written, left_out = [], {}
    for name, tensor in tensors.items():
        same = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else object()
        if (first := kept.setdefault(same, name)) != name:
            left_out[name] = first
        else:
            written.append(Output(name, tuple(tensor.shape), tensor.dtype, lambda tensor=tensor: tensor))
    return written, left_out


def write_file(path: Path, tensors: Sequence[Output], metadata: Mapping[str, str] | None = None) -> None:
    """Writes one file that takes its place only when it is whole.

    Wide types come first, so that every tensor is aligned. Raises CheckpointError for a name that is doubled, a type
    that the format does not have, and when the file cannot be written.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    in_order = sorted(tensors, key=lambda tensor: (-tensor.dtype.itemsize, tensor.name))
    at = 0
    for tensor in in_order:
        if tensor.name in header:
            raise CheckpointError(f"{path}: two tensors have the name {tensor.name!r}")
        if tensor.dtype not in NAMES:
            raise CheckpointError(
                f"{path}: {tensor.name} is {tensor.dtype}, which safetensors does not have; convert it"
            )
        offsets = [at, at := at + tensor.n_bytes]
        header[tensor.name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in in_order:
            data = tensor.data().detach()
            assert (tuple(data.shape), data.dtype) == (tensor.shape, tensor.dtype), tensor.name
            if tensor.n_bytes:
                file.write(data.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def write_folder(
    folder: Path, tensors: Sequence[Output], metadata: Mapping[str, str] | None = None, shard_bytes: int = SHARD_BYTES
) -> None:
    """Writes `model.safetensors`, or shards of at most so many bytes with an index of them, as other libraries do."""
    shards: list[list[Output]] = [[]]
    room = shard_bytes
    for tensor in tensors:
        if tensor.n_bytes > room and shards[-1]:
            shards.append([])
            room = shard_bytes
        shards[-1].append(tensor)
        room -= tensor.n_bytes
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if len(shards) == 1:
            write_file(folder / SINGLE, shards[0], metadata)
            (folder / INDEX).unlink(missing_ok=True)
            return
        table: dict[str, str] = {}
        for i, shard in enumerate(shards, start=1):
            name = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
            write_file(folder / name, shard, metadata)
            table |= dict.fromkeys((tensor.name for tensor in shard), name)
        total = sum(tensor.n_bytes for tensor in tensors)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(table.items()))}
        with replacing(folder / INDEX) as file:
            file.write(json.dumps(index, indent=2, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise CheckpointError(f"{folder}: {error.strerror or error}; check the folder and the free space") from error
