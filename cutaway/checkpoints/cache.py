"""The folder that holds downloaded models, and the two things that make it safe to share: a lock and atomic moves."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from cutaway.errors import CheckpointError


def cache_dir() -> Path:
    """The cache folder: `CUTAWAY_CACHE`, else the place where this platform keeps caches (not created here)."""
    if moved := os.environ.get("CUTAWAY_CACHE"):
        return Path(moved).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local") / "cutaway" / "cache"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "cutaway"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "cutaway"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise CheckpointError("this user has no home folder for a cache; set CUTAWAY_CACHE to a folder") from None


@contextmanager
def staging(name: str) -> Generator[Path, None, None]:
    """An empty folder for unfinished work on `name`, held by one process at a time and removed afterwards.

    It lies inside the cache, so that moving a finished file out of it is one atomic rename. The system drops the lock
    when its holder dies, and the next holder empties the folder: a killed process leaves nothing that is ever read.

    Raises CheckpointError when the cache folder cannot be written.
    """
    folder = cache_dir() / "staging" / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(name + ".lock")):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(
            f"{cache_dir()}: the cache folder cannot be used ({error.strerror or error}); "
            "free some space, or set CUTAWAY_CACHE to a folder that can be written"
        ) from error
