"""Safetensors, read through memory maps: one file, or a folder whose index says which file holds what.

Neither is trusted. The header is bounded before it is read, and every offset is checked before any tensor is touched;
an index cannot name a file outside of its folder, and must agree with the files it names.
Format: eight bytes of length, a JSON header, then the values without a gap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from cutaway.checkpoints.mapped import drop, map_file
from cutaway.errors import CheckpointError

MAX_HEADER = 1 << 24
"""Bytes of JSON, enough for a hundred thousand tensors in one file."""
DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
}  # fmt: skip
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies in its file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    n_bytes: int


class SafetensorsFile:
    """One file: `tensors` by name, `metadata`, and `aliases` (names of tensors that are stored under another name).

    Raises CheckpointError, naming the file, what is wrong and what to do, for everything that is not sound.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.where = str(path)
        self._map = map_file(self.path)
        header, data_start = _header(self.path, self._map)
        found = header.pop("__metadata__", {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            _fail(self.path, "__metadata__ is not a table of strings")
        self.metadata: Mapping[str, str] = found
        entries = {name: _entry(self.path, name, value, data_start) for name, value in header.items()}
        _check_cover(self.path, entries, data_start, len(self._map))
        self.tensors: Mapping[str, Entry] = entries
        self.aliases = {name: kept for name, kept in found.items() if kept in entries and name not in entries}

    def names(self) -> list[str]:
        """All names, aliases last."""
        return [*self.tensors, *self.aliases]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._entry(name).shape

    def dtype(self, name: str) -> torch.dtype:
        """The type in which the file holds a tensor."""
        return self._entry(name).dtype

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        """A tensor, in `out` when that is given (its shape, any dtype), else on the map, without a copy."""
        entry = self._entry(name)
        if out is not None and tuple(out.shape) != entry.shape:
            raise CheckpointError(f"{self.path}: {name} has the shape {entry.shape}, but {tuple(out.shape)} is wanted")
        if entry.n_bytes == 0:
            values = torch.empty(entry.shape, dtype=entry.dtype)
        else:
            count = math.prod(entry.shape)
            values = torch.frombuffer(self._map, dtype=entry.dtype, count=count, offset=entry.start).view(entry.shape)
        if out is not None:
            return out.copy_(values)
        return values.clone() if entry.start % entry.dtype.itemsize else values  # old files are not aligned

    def drop(self) -> None:
        """Give back the memory of what was read."""
        drop(self._map)

    def _entry(self, name: str) -> Entry:
        name = self.aliases.get(name, name)
        if name not in self.tensors:
            raise CheckpointError(f"{self.path}: the file has no tensor {name!r}; it holds {len(self.tensors)} others")
        return self.tensors[name]


class SafetensorsFolder:
    """The tensors of a folder: those that its index lists, or those of `model.safetensors`. Other files are not read.

    Raises CheckpointError for a missing file or shard, a shard that is not beside its index, and for a tensor that is
    not where the index says, or in two shards.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.where = str(folder)
        self._files: dict[str, SafetensorsFile] = {}
        if (folder / INDEX).is_file():
            self._read_index(folder / INDEX)
        elif (folder / SINGLE).is_file():
            file = SafetensorsFile(folder / SINGLE)
            self._files = dict.fromkeys(file.names(), file)
        else:
            there = ", ".join(sorted(p.name for p in folder.glob("*"))[:8]) if folder.is_dir() else "no such folder"
            raise CheckpointError(
                f"{folder}: neither {SINGLE} nor {INDEX} is there (but: {there or 'nothing'}); name the model's folder"
            )

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self._file(name).shape(name)

    def dtype(self, name: str) -> torch.dtype:
        """The type in which the file holds a tensor."""
        return self._file(name).dtype(name)

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        """A tensor, in `out` when that is given, else on the map of its file, without a copy."""
        return self._file(name).read(name, out)

    def drop(self) -> None:
        """Give back the memory of what was read."""
        for file in {id(file): file for file in self._files.values()}.values():
            file.drop()

    def _file(self, name: str) -> SafetensorsFile:
        if name not in self._files:
            raise CheckpointError(f"{self.where}: there is no tensor {name!r} among {len(self._files)}")
        return self._files[name]

    def _read_index(self, index: Path) -> None:
        table = _parse(index, _bounded(index), "an index of shards").get("weight_map")
        if not isinstance(table, dict) or not table:
            _fail(index, "weight_map is not a table of tensors and their files")
        shards: dict[str, SafetensorsFile] = {}
        for name, shard in table.items():
            if not isinstance(shard, str) or not shard.endswith(".safetensors") or set(shard) & set("/\\:"):
                _fail(index, f"{name} is said to be in {shard!r}, not a file name in this folder with .safetensors")
            if shard not in shards:
                if not (index.parent / shard).is_file():
                    _fail(index, f"the shard {shard} is missing, which holds {name}", "fetch that file too")
                shards[shard] = SafetensorsFile(index.parent / shard)
            if name not in shards[shard].names():
                _fail(index, f"{name} is not in {shard}, where the index says it is")
            self._files[name] = shards[shard]
        for shard, file in shards.items():
            for name in file.tensors:
                if name not in table:
                    _fail(index, f"{shard} holds {name}, which the index does not list")
                if table[name] != shard:
                    _fail(index, f"{name} is in {shard} and in {table[name]}", "which one is meant cannot be known")


def _fail(path: Path, what: str, advice: str = "the file is cut off or damaged: fetch it again") -> NoReturn:
    raise CheckpointError(f"{path}: {what}; {advice}")


def _bounded(path: Path) -> bytes:
    if (size := path.stat().st_size) > MAX_HEADER:
        _fail(path, f"it has {size} bytes, at most {MAX_HEADER} are accepted", "an index is far smaller")
    return path.read_bytes()


def _header(path: Path, data: mmap) -> tuple[dict[str, Any], int]:
    if len(data) < 8:
        _fail(path, f"it has only {len(data)} bytes")
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        if data[:2] == b"PK" or data[:1] == b"\x80":
            _fail(path, "it is a pickled PyTorch file", "convert it to safetensors where you trust it")
        if data[:4] == b"GGUF":
            _fail(path, "it is a GGUF file", "rename it to .gguf")
        if data[:7] == b"version":
            _fail(path, "it is a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`")
        _fail(path, f"its header is said to have {length} bytes, but the file has only {len(data)}")
    if length > MAX_HEADER:
        _fail(path, f"its header has {length} bytes, at most {MAX_HEADER} are accepted", "split the file into shards")
    return _parse(path, data[8 : 8 + length], "a header of safetensors"), 8 + length


def _parse(path: Path, text: bytes, what: str) -> dict[str, Any]:
    try:
        table = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        _fail(path, f"not {what} ({error})")
    if not isinstance(table, dict):
        _fail(path, f"not {what} (a {type(table).__name__}, not a table)")
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return table


def _entry(path: Path, name: str, value: Any, data_start: int) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        _fail(path, f"{name} is not described by dtype, shape and data_offsets")
    shape, offsets = value["shape"], value["data_offsets"]
    if not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        _fail(path, f"the shape or the offsets of {name} are not whole numbers from 0 on")
    if not isinstance(value["dtype"], str) or value["dtype"] not in DTYPES:
        _fail(path, f"{name} has the type {value['dtype']!r}", f"known are: {', '.join(DTYPES)}")
    dtype, (begin, end) = DTYPES[value["dtype"]], offsets
    if (n_bytes := math.prod(shape) * dtype.itemsize) != end - begin:
        _fail(path, f"{name} of the shape {tuple(shape)} takes {n_bytes} bytes, but its offsets span {end - begin}")
    return Entry(dtype, tuple(shape), data_start + begin, n_bytes)


def _counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and len(numbers) <= 64 and all(type(n) is int and n >= 0 for n in numbers)


def _check_cover(path: Path, entries: Mapping[str, Entry], data_start: int, size: int) -> None:
    """The tensors must lie one behind the other, from the header to the end of the file."""
    position: Callable[[tuple[str, Entry]], tuple[int, int]] = lambda item: (item[1].start, item[1].n_bytes)
    at, before = data_start, "the header"
    for name, entry in sorted(entries.items(), key=position):
        if entry.start < at:
            _fail(path, f"{name} overlaps {before}")
        if entry.start > at:
            _fail(path, f"between {before} and {name} lie {entry.start - at} bytes that belong to no tensor")
        at, before = entry.start + entry.n_bytes, name
        if at > size:
            _fail(path, f"{name} ends at byte {at}, but the file has only {size}")
    if at != size:
        _fail(path, f"behind {before} lie {size - at} bytes that belong to no tensor")
