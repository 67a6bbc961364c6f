"""A handed case, and how far a model is from it: what the tests of traps measure with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.models import Transformer, build
from cutaway.parts.step import Given


class Case(NamedTuple):
    """Our model of the folder, transformers' outputs, and how far apart they may be."""

    model: Transformer
    refs: dict[str, Tensor]
    tolerance: float


def opened(shared: Path, name: str) -> Case:
    """The case of this name."""
    folder = shared / "cases" / "given" / name
    index = json.loads((folder.parent / "index.json").read_text())["cases"]
    tolerance = next(each["tolerance"] for each in index if each["case"] == name)
    return Case(open_checkpoint(folder / "model").load(), load_file(folder / "refs.safetensors"), tolerance)


def as_spec(model: Transformer, record: spec.Model) -> Transformer:
    """The same weights in a model of another spec."""
    other = build(record)
    other.load_state_dict(model.state_dict(), assign=True)
    return other.eval()


@torch.no_grad()
def off(model: Transformer, refs: dict[str, Tensor], key: str = "full") -> float:
    """The worst difference from the reference where tokens are real."""
    mask = refs.get(f"{key}.mask")
    difference = (model(refs[f"{key}.ids"], Given(mask=mask)) - refs[f"{key}.logits"]).abs().amax(-1)
    return float((difference if mask is None else difference[mask == 1]).max())


def off_with(case: Case, kind: type[spec.Record], **changes: Any) -> float:
    """How far off the case is once every record of a kind has other values."""
    record = spec.mapped(
        case.model.spec, lambda each: each.replace(**changes) if isinstance(each, kind) else each
    )  # fmt: skip
    return off(as_spec(case.model, record), case.refs)
