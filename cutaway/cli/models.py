"""The spec behind a word of the command line: a preset, a spec file, a known model, a folder or a GGUF file."""

from __future__ import annotations

from pathlib import Path

from cutaway import spec
from cutaway.checkpoints.pull import KNOWN, find
from cutaway.errors import InputError


def spec_of(name: str, sets: dict[str, str]) -> spec.Model:
    """The spec of a preset, a spec file or a checkpoint, with `--set` applied."""
    path = Path(name)
    if name in spec.names():
        record = spec.preset(name)
    elif path.suffix in (".toml", ".json") and path.is_file():
        record = spec.load(path)
    else:
        record = _checkpoint_spec(name, path)
    return spec.set_values(record, sets) if sets else record


def _checkpoint_spec(name: str, path: Path) -> spec.Model:
    from cutaway.checkpoints.opened import open_checkpoint

    path = find(name) or path if name in KNOWN else path
    if not path.exists():
        raise InputError(f"{name}: no such preset, file or folder; `cutaway list` names what is there")
    return open_checkpoint(path).record
