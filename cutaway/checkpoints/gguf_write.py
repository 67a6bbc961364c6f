"""Writing GGUF files (version 3): the metadata and the table first, then one tensor after the other."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.checkpoints.gguf import ARRAY, MAX_ALIGNMENT, SCALARS, STRING, Field
from cutaway.checkpoints.gguf_blocks import BlockType
from cutaway.checkpoints.mapped import replacing
from cutaway.errors import CheckpointError

NUMBERS = {name: (number, dtype) for number, (name, dtype) in SCALARS.items()}
MAX_NAME = 63
"""Bytes in the name of a tensor, as llama.cpp has it."""


@dataclass(frozen=True)
class Stored:
    """A tensor to write. `data` gives its bytes when its turn comes, so only one needs to be in memory."""

    name: str
    shape: tuple[int, ...]
    kind: BlockType
    data: Callable[[], np.ndarray]

    @property
    def n_bytes(self) -> int:
        """How many bytes `data` must give."""
        return math.prod(self.shape) // self.kind.size * self.kind.n_bytes


def fits(kind: BlockType, shape: Sequence[int]) -> bool:
    """Whether rows of a tensor are whole blocks of this type."""
    return bool(shape) and shape[-1] % kind.size == 0


def field(value: Any) -> Field:
    """A plain value with the type that llama.cpp expects of it.

    bool -> BOOL, int -> UINT32 (INT32 when negative, 64 bits when large), float -> FLOAT32, str -> STRING; lists of one
    of these, whole numbers as INT32 (INT64 when large); an empty list counts as one of strings.
    """
    if isinstance(value, bool):
        return Field("BOOL", value)
    if isinstance(value, str):
        return Field("STRING", value)
    if isinstance(value, int):
        return Field(_integer(value), value)
    if isinstance(value, float):
        return Field("FLOAT32", value)
    items = list(value)
    if items and all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return Field("ARRAY", items, "INT32" if -(2**31) <= min(items) and max(items) < 2**31 else "INT64")
    kinds = {field(item).type for item in items} or {"STRING"}
    if len(kinds) > 1 or "ARRAY" in kinds:
        raise CheckpointError(f"GGUF has no lists of mixed items: {str(value)[:60]}")
    return Field("ARRAY", items, kinds.pop())


def _integer(value: int) -> str:
    if value < 0:
        return "INT32" if value >= -(2**31) else "INT64"
    return "UINT32" if value < 2**32 else "UINT64"


def write_gguf(path: Path, fields: Mapping[str, Field], tensors: Sequence[Stored]) -> None:
    """Writes a file that takes its place only when it is whole.

    Raises CheckpointError for names that are doubled or too long, for rows that are no whole blocks, for values that
    the type cannot hold, and when the file cannot be written.
    """
    alignment = int(fields["general.alignment"].value) if "general.alignment" in fields else 32
    if not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise CheckpointError(f"{path}: general.alignment is {alignment}, not a power of two from 8 to {MAX_ALIGNMENT}")
    _check(path, tensors)
    offset, table = 0, []
    for tensor in tensors:
        table.append(_entry(tensor, offset))
        offset += -(-tensor.n_bytes // alignment) * alignment
    head = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))]
    head += [_text(key) + _typed(path, key, value) for key, value in fields.items()] + table
    size = sum(map(len, head))
    with replacing(path) as file:
        file.writelines(head)
        file.write(bytes(-size % alignment))
        for tensor in tensors:
            try:
                data = np.ascontiguousarray(tensor.data()).reshape(-1).view(np.uint8)
            except ValueError as error:
                raise CheckpointError(
                    f"{path}: {tensor.name} cannot be stored as {tensor.kind.name}: {error}"
                ) from error
            assert data.size == tensor.n_bytes, f"{tensor.name}: {data.size} bytes, expected {tensor.n_bytes}"
            file.write(data.data)
            file.write(bytes(-data.size % alignment))


def _check(path: Path, tensors: Sequence[Stored]) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise CheckpointError(f"{path}: two tensors have the name {tensor.name!r}")
        seen.add(tensor.name)
        if len(tensor.name.encode()) > MAX_NAME:
            raise CheckpointError(f"{path}: the name {tensor.name!r} is longer than the {MAX_NAME} bytes GGUF allows")
        if not 1 <= len(tensor.shape) <= 4 or 0 in tensor.shape or not fits(tensor.kind, tensor.shape):
            raise CheckpointError(
                f"{path}: {tensor.name} of the shape {tensor.shape} cannot be stored as {tensor.kind.name}: GGUF needs "
                f"1 to 4 dimensions and rows of whole blocks of {tensor.kind.size}; store it as F16 or F32"
            )


def _entry(tensor: Stored, offset: int) -> bytes:
    n = len(tensor.shape)
    return _text(tensor.name) + struct.pack(f"<I{n}QIQ", n, *reversed(tensor.shape), tensor.kind.id, offset)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(path: Path, key: str, value: Field) -> bytes:
    try:
        if value.type == "STRING":
            return struct.pack("<I", STRING) + _text(value.value)
        if value.type == "ARRAY":
            if value.item == "STRING":
                kind, items = STRING, b"".join(map(_text, value.value))
            else:
                kind, dtype = NUMBERS[value.item or ""]
                items = np.asarray(value.value, dtype).tobytes()
            return struct.pack("<IIQ", ARRAY, kind, len(value.value)) + items
        kind, dtype = NUMBERS[value.type]
        return struct.pack("<I", kind) + np.asarray(value.value, dtype).tobytes()
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: the field {key!r} cannot be stored as {value.type}: {error}") from error
