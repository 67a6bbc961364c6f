"""A Hugging Face folder: config.json, generation_config.json, the tokenizer's files and safetensors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from cutaway import spec
from cutaway.checkpoints import sentences
from cutaway.checkpoints.export import Place, Target
from cutaway.checkpoints.opened import Opened
from cutaway.checkpoints.safetensors_write import Output, write_folder
from cutaway.checkpoints.written import Taken, Written
from cutaway.errors import CheckpointError

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
NOT_CARRIED = (
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "auto_map",
    "_name_or_path",
    "use_cache",
)
"""Keys of the source's configuration that speak of its own file or are written anew."""
IDS = {role: f"{role}_token_id" for role in ("bos", "eos", "pad")}
"""Keys that are written in any case: the peer's classes have ids of their own for one that is not there."""
COPIED = (".json", ".txt", ".jinja", ".model")
OWN = ("config.json", "pytorch_model.bin.index.json", "model.safetensors.index.json")
MAX_COPIED = 1 << 28


def write(opened: Opened, target: Target, folder: Path, dtype: str) -> Written:
    """Write all files of a folder; config.json comes last."""
    if dtype and dtype not in DTYPES:
        raise CheckpointError(f"{dtype}: no type for a Hugging Face folder; choose {', '.join(DTYPES)}, or write GGUF")
    taken, same = Taken(opened, target), opened.format == "hf" and opened.label == target.label
    outputs = [each for place in target.places for each in _outputs(taken, place, DTYPES.get(dtype))]
    write_folder(folder, outputs)
    tokens = _tokenizer(opened, folder)
    if opened.format != "hf":  # else its files were copied with the tokenizer's
        sentences.write_sentences(folder, opened.record)
    if not same and not (folder / "generation_config.json").exists():
        _json(folder / "generation_config.json", _generation(opened.record.generation, tokens["bos_token_id"]))
    widest = max((output.dtype for output in outputs), key=lambda each: each.itemsize)
    known = _carried(opened) if same else tokens
    stored = {"torch_dtype": str(widest).removeprefix("torch.")}
    _json(folder / "config.json", known | target.config | stored)
    return Written(folder, target.label, len(outputs), sum(o.n_bytes for o in outputs), list(target.form.said))


def _outputs(taken: Taken, place: Place, dtype: torch.dtype | None) -> list[Output]:
    """The tensors of the file that a rule writes: one, or several that are one of ours."""
    stored = taken.dtype(place)
    dtype = dtype if dtype is not None and stored.is_floating_point else stored

    def data() -> torch.Tensor:
        values = taken.read(place)
        out = values.to(dtype)
        if out.numel() and dtype != values.dtype and bool(torch.isinf(torch.stack(torch.aminmax(out))).any()):
            raise CheckpointError(
                f"{taken.opened.path}: {place.name} has values too large for {dtype}; take BF16 or F32"
            )
        return out

    shapes = place.rule.pieces(torch.empty(place.shape, device="meta"))
    return [
        Output(name, tuple(piece.shape), dtype, lambda name=name: place.rule.pieces(data())[name])
        for name, piece in shapes.items()
    ]


def _carried(opened: Opened) -> dict[str, Any]:
    """Keys that mean nothing to us but may to others."""
    assert opened.config is not None
    return {k: v for k, v in opened.config.data.items() if k in opened.config.ignored and k not in NOT_CARRIED}


def _tokenizer(opened: Opened, folder: Path) -> dict[str, Any]:
    """Write the tokenizer's files; the keys of config.json that name its tokens, null where it has no such token."""
    if opened.format == "hf":
        for path in _companions(opened.path):
            inner = path.relative_to(opened.path)
            (folder / inner).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / inner)
        data = opened.config.data if opened.config is not None else {}
        return {key: data.get(key) for key in IDS.values()}
    tokenizer = opened.tokenizer()
    if tokenizer is not None:
        tokenizer.save(folder)
    special = {} if tokenizer is None else tokenizer.special
    return {key: special.get(role) for role, key in IDS.items()}


def _companions(folder: Path) -> list[Path]:
    """The files of texts that go with the weights: the tokenizer's, and those of subfolders (templates, pooling)."""
    found = [path for path in folder.iterdir() if path.name not in OWN] + list(folder.glob("*/*"))
    inside = [path for path in found if path.suffix in COPIED and path.resolve().is_relative_to(folder.resolve())]
    return [path for path in inside if path.is_file() and path.stat().st_size <= MAX_COPIED]


def _generation(g: spec.Generation, bos: Any) -> dict[str, Any]:
    """generation_config.json of our defaults."""
    stops = g.stop_ids[0] if len(g.stop_ids) == 1 else list(g.stop_ids) or None
    pad = None if g.pad_id == "none" else g.pad_id
    said: dict[str, Any] = {"bos_token_id": bos, "eos_token_id": stops, "pad_token_id": pad}
    if g.temperature > 0:
        said |= {"do_sample": True, "temperature": g.temperature, "top_k": g.top_k, "top_p": g.top_p, "min_p": g.min_p}
    for name, value, default in (
        ("repetition_penalty", g.repetition_penalty, 1.0), ("num_beams", g.n_beams, 1),
        ("length_penalty", g.length_penalty, 1.0), ("decoder_start_token_id", g.start_id, "none"),
        ("forced_eos_token_id", g.end_forced_id, "none"),
        ("suppress_tokens", list(g.suppressed_ids), []),
    ):  # fmt: skip
        if value != default:
            said[name] = value
    if len(g.forced_ids) == 1:
        said["forced_bos_token_id"] = g.forced_ids[0]
    return said


def _json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
