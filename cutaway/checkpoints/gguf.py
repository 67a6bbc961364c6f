"""GGUF files, read through a memory map: metadata, the table of tensors, and each tensor when it is asked for.

The file is not trusted. Every count, length, offset and type is checked against the size of the file before anything is
allocated, so a garbled file costs no more than a good one of its size. Format: ggml's `docs/gguf.md`, versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from cutaway.checkpoints.gguf_blocks import BY_ID, CHUNK, BlockType, dequantize
from cutaway.checkpoints.mapped import drop, map_file
from cutaway.errors import CheckpointError

SCALARS = {
    0: ("UINT8", "<u1"), 1: ("INT8", "<i1"), 2: ("UINT16", "<u2"), 3: ("INT16", "<i2"), 4: ("UINT32", "<u4"),
    5: ("INT32", "<i4"), 6: ("FLOAT32", "<f4"), 7: ("BOOL", "?"), 10: ("UINT64", "<u8"), 11: ("INT64", "<i8"),
    12: ("FLOAT64", "<f8"),
}  # fmt: skip
"""Number of a type of metadata in the file -> its name and NumPy's name of it."""
STRING, ARRAY = 8, 9
MAX_STRINGS = 1 << 21
"""Strings in all of the metadata: the largest vocabularies have 2^18 tokens and as many merges."""
MAX_NAME = 1 << 16
MAX_ALIGNMENT = 1 << 16
PLAIN = {
    "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
}  # fmt: skip
"""Types whose values lie in the file as torch has them in memory."""


@dataclass(frozen=True)
class Field:
    """A value of the metadata with its type in the file; `item` is the type of an array's items."""

    type: str
    value: Any
    item: str | None = None


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the file. The shape is torch's: GGUF lists the same lengths in the opposite order."""

    name: str
    shape: tuple[int, ...]
    kind: BlockType
    start: int
    n_bytes: int


class GGUF:
    """An open file: `fields` (or `values`, without their types), `tensors` by name, and `read` for the weights.

    Raises CheckpointError, naming the file, the place and what to do, for everything that is not sound.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._map = map_file(self.path)
        header = _Header(self.path, self._map)
        self.version: int = header.version
        self.fields: Mapping[str, Field] = header.fields
        self.tensors: Mapping[str, TensorInfo] = header.tensors

    @property
    def values(self) -> dict[str, Any]:
        """The metadata as plain values: numbers, strings, lists of strings, NumPy arrays of numbers."""
        return {key: field.value for key, field in self.fields.items()}

    def raw(self, name: str) -> np.ndarray:
        """The stored bytes on the map, without a copy: uint8 [rows, bytes of a row]."""
        info = self._info(name)
        flat = np.frombuffer(self._map, np.uint8, info.n_bytes, info.start)
        return flat.reshape(-1, info.shape[-1] // info.kind.size * info.kind.n_bytes)

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        """The tensor, in `out` when that is given (its shape, any floating type, contiguous).

        Without `out`, plain types come as they are, on the map and without a copy; blocks come as new float32.

        Raises CheckpointError for a name that the file does not have and for an output of another shape.
        """
        info = self._info(name)
        if out is not None and tuple(out.shape) != info.shape:
            raise CheckpointError(f"{self.path}: {name} has the shape {info.shape}, but {tuple(out.shape)} is wanted")
        if info.kind.name in PLAIN:
            n_values, dtype = math.prod(info.shape), PLAIN[info.kind.name]
            values = torch.frombuffer(self._map, dtype=dtype, count=n_values, offset=info.start).view(info.shape)
            return values if out is None else out.copy_(values)
        if out is None:
            out = torch.empty(info.shape, dtype=torch.float32)
        flat = out.view(-1)
        if out.dtype == torch.float32 and out.device.type == "cpu":
            dequantize(self.raw(name), info.kind, flat.numpy())
            return out
        blocks = self.raw(name).reshape(-1, info.kind.n_bytes)
        step = CHUNK // info.kind.size
        scratch = np.empty(CHUNK, np.float32)
        for start in range(0, len(blocks), step):
            part = blocks[start : start + step]
            values = dequantize(part, info.kind, scratch[: len(part) * info.kind.size])
            flat[start * info.kind.size :][: values.size].copy_(torch.from_numpy(values))
        return out

    def drop(self) -> None:
        """Give back the memory of what was read."""
        drop(self._map)

    def _info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise CheckpointError(f"{self.path}: the file has no tensor {name!r}; it holds {len(self.tensors)} others")
        return self.tensors[name]


class _Header:
    """What stands before the weights, read from front to back."""

    def __init__(self, path: Path, data: mmap) -> None:
        self.path, self.data, self.at, self.size = path, data, 0, len(data)
        self.n_strings = 0
        self.version, n_tensors, n_fields = self.preamble()
        self.fields = self.read_fields(n_fields)
        self.tensors = self.read_tensors(n_tensors)

    def fail(self, what: str, advice: str = "the file is cut off or damaged: fetch it again") -> NoReturn:
        raise CheckpointError(f"{self.path}: {what}; {advice}")

    def skip(self, n_bytes: int, what: str) -> int:
        """The offset of the next `n_bytes`, which are known to be there."""
        start = self.at
        if n_bytes > self.size - start:
            self.fail(f"{what} takes {n_bytes} bytes at offset {start}, but the file has only {self.size}")
        self.at = start + n_bytes
        return start

    def number(self, form: str, what: str) -> int:
        return struct.unpack_from(form, self.data, self.skip(struct.calcsize(form), what))[0]

    def count(self, form: str, what: str, least: int) -> int:
        """A number of things of at least so many bytes each, all of which must fit into the rest of the file."""
        n = self.number(form, what)
        if n * least > self.size - self.at:
            self.fail(f"{what} is {n}, more than the file of {self.size} bytes can hold")
        return n

    def text(self, what: str) -> str:
        length = self.count("<Q", f"the length of {what}", 1)
        start = self.skip(length, what)
        try:
            return self.data[start : self.at].decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} at offset {start} is not UTF-8")

    def preamble(self) -> tuple[int, int, int]:
        if (magic := self.data[:4]) != b"GGUF":
            self.fail(f"not a GGUF file (it begins with {magic!r})", _what_it_is(self.data[:64]))
        self.skip(4, "the magic number")
        version = self.number("<I", "the version")
        if version & 0xFFFF == 0:
            self.fail("the file is big-endian", "convert it to little-endian with llama.cpp's tools")
        if version not in (2, 3):
            self.fail(f"GGUF version {version} is not known", "versions 2 and 3 can be read: convert the file")
        return version, self.count("<Q", "the number of tensors", 24), self.count("<Q", "the number of fields", 13)

    def read_fields(self, n_fields: int) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        for i in range(n_fields):
            key = self.text(f"the key of field {i}")
            if key in fields:
                self.fail(f"the field {key!r} is there twice", "which one is meant cannot be known: fetch another file")
            if not 0 < len(key) < MAX_NAME:
                self.fail(f"the key of field {i} has {len(key)} characters")
            fields[key] = self.value(self.number("<I", f"the type of {key!r}"), repr(key))
        return fields

    def value(self, number: int, what: str) -> Field:
        if number == STRING:
            self.n_strings += 1
            return Field("STRING", self.text(what))
        if number == ARRAY:
            return self.array(what)
        if number not in SCALARS:
            self.fail(f"{what} has the type {number}, which is not known", "the file is damaged, or newer than this")
        name, dtype = SCALARS[number]
        return Field(name, self.numbers(name, dtype, 1, what).item())

    def numbers(self, name: str, dtype: str, n: int, what: str) -> np.ndarray:
        start = self.skip(n * np.dtype(dtype).itemsize, what)
        if name == "BOOL" and n and np.frombuffer(self.data, np.uint8, n, start).max() > 1:
            self.fail(f"{what} is neither true nor false")
        return np.frombuffer(self.data, dtype, n, start)

    def array(self, what: str) -> Field:
        number = self.number("<I", f"the item type of {what}")
        if number in SCALARS:
            name, dtype = SCALARS[number]
            n = self.count("<Q", f"the length of {what}", np.dtype(dtype).itemsize)
            return Field("ARRAY", self.numbers(name, dtype, n, what), name)
        if number != STRING:
            self.fail(f"{what} is a list of items of type {number}", "lists hold numbers or strings")
        n = self.count("<Q", f"the length of {what}", 8)
        self.n_strings += n
        if self.n_strings > MAX_STRINGS:
            self.fail(f"{what} brings the number of strings to {self.n_strings}", f"at most {MAX_STRINGS} are accepted")
        return Field("ARRAY", self.texts(n, what), "STRING")

    def texts(self, n: int, what: str) -> list[str]:
        """Like `text` n times, in one tight loop: a vocabulary has some hundred thousand of them."""
        data, at, size, length_at, items = self.data, self.at, self.size, struct.Struct("<Q").unpack_from, []
        try:
            for _ in range(n):
                (length,) = length_at(data, at)
                end = at + 8 + length
                if end > size:
                    self.fail(f"item {len(items)} of {what} has {length} bytes at offset {at}, past the file's end")
                items.append(str(data[at + 8 : end], "utf-8"))
                at = end
        except struct.error:
            self.fail(f"the file ends inside {what}")
        except UnicodeDecodeError:
            self.fail(f"item {len(items)} of {what} is not UTF-8")
        self.at = at
        return items

    def read_tensors(self, n_tensors: int) -> dict[str, TensorInfo]:
        if self.whole("split.count", 1) > 1:
            self.fail("this is one of several parts", "join them with llama.cpp's `llama-gguf-split --merge` first")
        alignment = self.whole("general.alignment", 32)
        if not 8 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            self.fail(f"general.alignment is {alignment}, not a power of two from 8 to {MAX_ALIGNMENT}")
        entries = [self.entry(i) for i in range(n_tensors)]
        data_start = -(-self.at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in entries:
            if name in tensors:
                self.fail(f"the tensor {name!r} is there twice", "which one is meant cannot be known: fetch another")
            if offset % alignment:
                self.fail(f"{name} begins at offset {offset}, which is no multiple of the alignment {alignment}")
            n_bytes = math.prod(shape) // kind.size * kind.n_bytes
            if data_start + offset + n_bytes > self.size:
                self.fail(f"{name} ends at byte {data_start + offset + n_bytes}, but the file has only {self.size}")
            tensors[name] = TensorInfo(name, shape, kind, data_start + offset, n_bytes)
        in_order = sorted(tensors.values(), key=lambda info: info.start)
        for before, after in pairwise(in_order):
            if after.start < before.start + before.n_bytes:
                self.fail(f"{before.name} and {after.name} overlap")
        return tensors

    def whole(self, key: str, default: int) -> int:
        value = self.fields[key].value if key in self.fields else default
        if not isinstance(value, int):
            self.fail(f"{key} is no whole number")
        return value

    def entry(self, i: int) -> tuple[str, tuple[int, ...], BlockType, int]:
        name = self.text(f"the name of tensor {i}")
        if not 0 < len(name) < MAX_NAME:
            self.fail(f"the name of tensor {i} has {len(name)} characters")
        n_dims = self.number("<I", f"the number of dimensions of {name}")
        if not 1 <= n_dims <= 4:
            self.fail(f"{name} has {n_dims} dimensions, GGUF allows 1 to 4")
        shape = tuple(self.number("<Q", f"the shape of {name}") for _ in range(n_dims))[::-1]
        number = self.number("<I", f"the type of {name}")
        if number not in BY_ID:
            known = ", ".join(kind.name for kind in BY_ID.values())
            self.fail(f"{name} has the type {number}, which is not known", f"known are: {known}")
        kind = BY_ID[number]
        if 0 in shape or shape[-1] % kind.size:
            self.fail(f"{name} has the shape {shape}, whose rows are not whole blocks of {kind.size} ({kind.name})")
        return name, shape, kind, self.number("<Q", f"the offset of {name}")


def _what_it_is(start: bytes) -> str:
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`"
    if start[:2] == b"PK" or start[:1] == b"\x80":
        return "it looks like a pickled PyTorch file: convert it to safetensors"
    if start[8:9] == b"{":
        return "it looks like a safetensors file: rename it to .safetensors"
    return "name a .gguf file"
