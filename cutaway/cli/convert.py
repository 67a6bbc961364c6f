"""`cutaway convert`: a checkpoint into another format."""

from __future__ import annotations

from typing import Any

from cutaway.checkpoints.convert import convert
from cutaway.cli.models import fetch
from cutaway.cli.output import print_json


def show_convert(model: str, out: str, as_json: bool, **options: Any) -> None:
    """Convert and tell what was written."""
    done = convert(fetch(model), out=out, **options)
    if as_json:
        print_json({"path": str(done.path), "family": done.label, "tensors": done.n_tensors,
                          "bytes": done.n_bytes, "notes": done.notes})  # fmt: skip
        return
    print(f"{done.path}: {done.label}, {done.n_tensors} tensors, {done.n_bytes / 1e6:,.1f} MB of weights")
    for note in done.notes:
        print(f"  {note}")
