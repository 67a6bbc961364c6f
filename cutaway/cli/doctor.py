"""`cutaway doctor`: what this set-up has and lacks, and what to do. It needs nothing but Python itself."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NEEDED = (
    "cyclopts fastapi filelock gguf jaxtyping jinja2 markdown-it-py numpy pydantic rich safetensors tokenizers tomli-w "
    "torch uvicorn"
).split()
MODULES = {"markdown-it-py": "markdown_it", "tomli-w": "tomli_w"}
PYTHON = (3, 11)
FREE = 500_000_000
"""Bytes that a model and its download take."""


class Finding(NamedTuple):
    """`state`: ok, note (works, but one should know), or fault; `advice` is what to do."""

    state: str
    what: str
    advice: str = ""


def show_doctor(as_json: bool) -> int:
    """Print a line a finding; the exit status is 1 where something is at fault."""
    found = list(findings())
    faults = [each for each in found if each.state == "fault"]
    if as_json:
        print(json.dumps({"well": not faults, "findings": [each._asdict() for each in found]}))
        return 1 if faults else 0
    width = shutil.get_terminal_size().columns
    marks = {"ok": "ok  ", "note": "note", "fault": "BAD "}
    for state, what, advice in found:
        told = f"{marks[state]}  {what}{f': {advice}' if advice else ''}"
        print(textwrap.fill(told, width, subsequent_indent=" " * 6, break_long_words=False), flush=True)
    print("\nall well" if not faults else f"\n{len(faults)} to mend, the first first")
    return 1 if faults else 0


def findings() -> Iterator[Finding]:
    """Python, packages, torch, memory, cache, models, the lab's page, the terminal."""
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < PYTHON
    advice = f"Cutaway needs {'.'.join(map(str, PYTHON))} or newer; make the environment anew" if old else ""
    yield Finding("fault" if old else "ok", f"python {version} ({sys.executable})", advice)
    missing = set()
    for name, least in _required().items():
        finding = _package(name, least)
        missing |= {name} if finding.state == "fault" else set()
        yield finding
    if "torch" not in missing:
        yield _torch()
    yield from _places(missing)
    yield _terminal()


def _required() -> dict[str, str]:
    """The packages that Cutaway needs and the least version of each, as far as its own installation tells."""
    try:
        told = importlib.metadata.requires("cutaway") or []
    except importlib.metadata.PackageNotFoundError:
        return dict.fromkeys(NEEDED, "")
    lines = [re.match(r"([\w.-]+)\s*(?:>=([\w.]+))?", line) for line in told if "extra ==" not in line]
    return {line[1]: line[2] or "" for line in lines if line} or dict.fromkeys(NEEDED, "")


def _package(name: str, least: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding("fault", f"{name} is missing", f"pip install '{name}{f'>={least}' if least else ''}'")
    if least and _numbers(version) < _numbers(least):
        return Finding("fault", f"{name} {version} is too old", f"pip install '{name}>={least}'")
    try:
        importlib.import_module(MODULES.get(name, name.replace("-", "_")))
    except Exception as error:  # a broken package may fail in any way
        reason = " ".join(str(error).split())[:120]
        return Finding("fault", f"{name} {version} does not load ({reason})", f"pip install --force-reinstall {name}")
    return Finding("ok", f"{name} {version}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def _torch() -> Finding:
    import torch

    try:
        right = float((torch.ones(2, 2) @ torch.ones(2, 2)).sum()) == 8.0
    except Exception as error:
        return Finding("fault", f"torch cannot multiply ({error})", "install the build of torch for this machine")
    if not right:
        return Finding("fault", "torch multiplies wrongly", "install the build of torch for this machine")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU, none is needed"
    n = torch.get_num_threads()
    return Finding("ok", f"torch computes, {n} thread{'s' * (n != 1)}, {device}")


def _places(missing: set[str]) -> Iterator[Finding]:
    """The cache folder, the models in it, pip to fetch more, the lab's page."""
    if "filelock" in missing:
        return
    from cutaway.checkpoints.cache import cache_dir
    from cutaway.checkpoints.pull import KNOWN, find, find_pip
    from cutaway.errors import CutawayError

    folder = cache_dir()
    yield _writable(folder)
    if (free := shutil.disk_usage(_nearest(folder)).free) < FREE:
        yield Finding("note", f"{free / 1e6:,.0f} MB are free at {folder}", "a model takes about 200 MB to fetch")
    for name, known in KNOWN.items():
        if find(name):
            yield Finding("ok", f"model {name} is here")
        elif known.path.exists():
            yield Finding("fault", f"model {name} is not whole", f"delete {known.path}, then: cutaway pull {name}")
        else:
            yield Finding("note", f"model {name} is not here yet", f"cutaway pull {name}")
    try:
        find_pip()
    except CutawayError as error:
        yield Finding("fault" if not any(map(find, KNOWN)) else "note", "nothing can be fetched", str(error))
    page = Path(__file__).parents[1] / "lab" / "static" / "index.html"
    if not page.is_file():
        yield Finding("note", "the lab's page is not built", "make lab (needs node or the network)")


def _writable(folder: Path) -> Finding:
    there = _nearest(folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        advice = "set CUTAWAY_CACHE to a folder that can be written"
        return Finding("fault", f"the cache {folder} cannot be written ({error.strerror})", advice)
    return Finding("ok", f"cache {folder}")


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _terminal() -> Finding:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    if encoding != "utf8":
        return Finding("note", f"this terminal is {sys.stdout.encoding}, not UTF-8", "set PYTHONUTF8=1")
    return Finding("ok", f"terminal UTF-8, {shutil.get_terminal_size().columns} columns"
                   f"{', no colour (NO_COLOR)' if os.environ.get('NO_COLOR') else ''}")  # fmt: skip
