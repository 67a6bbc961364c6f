"""A GGUF file: the keys of the architecture, the tokenizer's fields and the tensors in blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutaway import spec
from cutaway.checkpoints.export import Place, Target
from cutaway.checkpoints.gguf import GGUF, Field
from cutaway.checkpoints.gguf_blocks import BY_NAME, BlockType
from cutaway.checkpoints.gguf_keys import DERIVED, FACTORS
from cutaway.checkpoints.gguf_quantize import WRITABLE, quantize
from cutaway.checkpoints.gguf_write import Stored, field, fits, write_gguf
from cutaway.checkpoints.opened import Opened
from cutaway.checkpoints.written import Taken, Written
from cutaway.errors import CheckpointError
from cutaway.tokenizers.to_gguf import to_gguf

FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}
"""Numbers by which a file says of what type most of its tensors are."""
KEPT_WIDE = re.compile(r"embedding\.(positions|types)\.weight$|router\.weight$|experts\..*\.bias$")
"""Our names of tables that llama.cpp reads as F32 only."""
STORED = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F32"}


def write(opened: Opened, target: Target, folder: Path, dtype: str) -> Written:
    """Write one file into the folder."""
    if dtype and dtype not in WRITABLE:
        raise CheckpointError(f"{dtype}: no type that can be written to GGUF; choose {', '.join(WRITABLE)}")
    taken, notes = Taken(opened, target), list(target.form.said)
    tensors = [_factors(key, target.config[key]) for key in FACTORS if key in target.config]
    narrow = [place for place in target.places if _too_narrow(place, dtype)]
    if narrow:
        notes.append(f"{len(narrow)} tensors are stored as F16: their rows are no whole blocks of {dtype}")
    tensors += [_stored(taken, place, dtype) for place in target.places]
    kinds = [tensor.kind.name for tensor in tensors if len(tensor.shape) > 1]
    most = max(set(kinds), key=kinds.count)
    fields = _fields(opened, target, most)
    path = folder / f"{re.sub('[^A-Za-z0-9._-]+', '-', opened.record.name) or 'model'}-{dtype or most}.gguf"
    write_gguf(path, fields, tensors)
    return Written(folder, target.label, len(tensors), sum(tensor.n_bytes for tensor in tensors), notes)


def _fields(opened: Opened, target: Target, most: str) -> dict[str, Field]:
    arch = target.label
    values: dict[str, Any] = {"general.architecture": arch, "general.type": "model", "general.name": opened.record.name}
    for key, value in target.config.items():
        if key not in FACTORS and key not in DERIVED:
            values[key if key.startswith("tokenizer.") else f"{arch}.{key}"] = value
    if most in FILE_TYPES:
        values["general.file_type"] = FILE_TYPES[most]
    if most not in STORED.values():
        values["general.quantization_version"] = 2
    carried = _carried_fields(opened) if opened.file is not None else {}
    new = values | (_token_fields(opened) if opened.file is None else {})
    return carried | {key: field(value) for key, value in new.items()}


def _carried_fields(opened: Opened) -> dict[str, Field]:
    """What another GGUF file says of itself and of its tokens, as it is."""
    assert opened.file is not None
    kept = {key: value for key, value in opened.file.fields.items() if key.startswith(("general.", "tokenizer."))}
    return {
        key: value for key, value in kept.items() if key not in ("general.alignment", "general.quantization_version")
    }


def _token_fields(opened: Opened) -> dict[str, Any]:
    tokenizer = opened.tokenizer()
    if tokenizer is None:
        values: dict[str, Any] = {"tokenizer.ggml.model": "no_vocab"}
    else:
        values = to_gguf(tokenizer, spec.first_stack(opened.record).vocab_size)
    g = opened.record.generation
    for key, i in zip(("eos", "eot"), g.stop_ids, strict=False):
        values[f"tokenizer.ggml.{key}_token_id"] = i
    if g.pad_id != "none":
        values["tokenizer.ggml.padding_token_id"] = g.pad_id
    return values


def _factors(key: str, numbers: list[float]) -> Stored:
    data = np.asarray(numbers, np.float32)
    return Stored(FACTORS[key], data.shape, BY_NAME["F32"], lambda: data)


def _stored(taken: Taken, place: Place, dtype: str) -> Stored:
    kind = _kind(taken, place, dtype)
    file = taken.opened.file
    if file is not None and _is_raw(file, taken, place, kind):
        return Stored(place.name, place.shape, kind, lambda: file.raw(place.name))
    if kind.name not in WRITABLE:
        raise CheckpointError(
            f"{taken.opened.path}: {place.name} is {kind.name}, which can be read but not written; choose another type"
        )
    return Stored(place.name, place.shape, kind, lambda: quantize(taken.read(place).float().numpy(), kind))


def _kind(taken: Taken, place: Place, dtype: str) -> BlockType:
    if _kept_wide(place):
        return BY_NAME["F32"]
    if not dtype:
        if taken.opened.file is not None:
            names = {taken.opened.file.tensors[taken.opened.origin(name)[0]].kind for name in place.rule.ours}
            return names.pop() if len(names) == 1 else BY_NAME["F32"]
        return BY_NAME[STORED.get(taken.dtype(place), "F32")]
    return BY_NAME["F16" if _too_narrow(place, dtype) else dtype]


def _kept_wide(place: Place) -> bool:
    return len(place.shape) == 1 or any(KEPT_WIDE.search(name) for name in place.rule.ours)


def _too_narrow(place: Place, dtype: str) -> bool:
    return bool(dtype) and not _kept_wide(place) and not fits(BY_NAME[dtype], place.shape)


def _is_raw(file: GGUF, taken: Taken, place: Place, kind: BlockType) -> bool:
    """Whether the file's blocks can be copied as they are."""
    same_model = taken.opened.label == taken.target.label and not taken.target.form.said
    return same_model and place.name in file.tensors and file.tensors[place.name].kind == kind
