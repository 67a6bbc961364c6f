"""The model behind a word of the command line: a preset, a spec file, a known model, a folder, a file, a hub name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from cutaway import spec
from cutaway.checkpoints import hub
from cutaway.checkpoints.pull import KNOWN, alike, located
from cutaway.cli.output import errors
from cutaway.errors import InputError

if TYPE_CHECKING:
    import torch

    from cutaway.loaded import Loaded


def fetch(name: str) -> Path:
    """Where a model lies, fetched first where it is known but not here; a terminal shows how far that has come."""
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(f"{name}", total=None, visible=False)

        def report(what: str, done: int, total: int) -> None:
            progress.update(task, description=f"{name}: {what}", completed=done, total=total, visible=True)

        return located(name, report)


def fetch_known(name: str) -> Path:
    """As `fetch`, for the names of `cutaway list` and of the hub alone."""
    if name not in KNOWN and not hub.is_name(name):
        raise InputError(f"{name}: no model of this name is known{alike(name)}; `cutaway list` names them")
    return fetch(name)


def load_model(name: str, dtype: torch.dtype | None = None) -> Loaded:
    """The model of a name, ready to run, in float32 or another type; a terminal is told of random weights."""
    import torch

    from cutaway.loaded import load

    if name in spec.names() and errors.is_terminal:
        errors.print(f"{name}: a preset, so its weights are random")
    return load(name if name in spec.names() else fetch(name), torch.float32 if dtype is None else dtype)


def spec_of(name: str, sets: Mapping[str, str] = {}) -> spec.Model:
    """The spec of a preset, a spec file or a checkpoint, with `--set` applied; no weights are read."""
    if name in spec.names():
        record = spec.preset(name)
    else:
        path = fetch(name)
        if not path.exists():
            raise InputError(f"{name}: no such preset, file or folder{alike(name)}; `cutaway list` names what is there")
        record = spec.load(path) if path.suffix in (".toml", ".json") and path.is_file() else _of_checkpoint(path)
    return spec.set_values(record, sets) if sets else record


def _of_checkpoint(path: Path) -> spec.Model:
    from cutaway.checkpoints.opened import open_checkpoint

    return open_checkpoint(path).record
