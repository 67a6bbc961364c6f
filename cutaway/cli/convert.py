"""`cutaway convert`: a checkpoint into another format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.pull import KNOWN, pull


def show_convert(model: str, out: str, as_json: bool, **options: Any) -> None:
    """Convert and tell what was written."""
    source = pull(model) if model in KNOWN else Path(model)
    done = convert(source, out=out, **options)
    if as_json:
        print(json.dumps({"path": str(done.path), "family": done.label, "tensors": done.n_tensors,
                          "bytes": done.n_bytes, "notes": done.notes}))  # fmt: skip
        return
    print(f"{done.path}: {done.label}, {done.n_tensors} tensors, {done.n_bytes / 1e6:,.1f} MB of weights")
    for note in done.notes:
        print(f"  {note}")
