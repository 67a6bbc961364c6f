"""Files seen through memory maps: nothing is read before it is used, and what was read may be dropped again."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cutaway.errors import CheckpointError

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file, mapped privately: writing to them changes a page of this process, never the file.

    A tensor on the map is therefore an ordinary tensor. No memory is reserved for such writes, so a file may be larger
    than the memory.

    Raises CheckpointError for a file that is missing, empty, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise CheckpointError(f"{path}: the file is empty; fetch it again")
            if os.name == "nt":
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            flags, protection = mmap.MAP_PRIVATE | _NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            return mmap.mmap(file.fileno(), 0, flags=flags, prot=protection)
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}; check the path") from error


def drop(data: mmap.mmap) -> None:
    """Give back the memory of what was read; it is read from the file again where it is used."""
    if hasattr(data, "madvise"):
        data.madvise(mmap.MADV_DONTNEED)


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO, None, None]:
    """A file to write that takes the place of `path` when all went well, in one step; otherwise nothing is left."""
    try:
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        file = unfinished.open("wb")
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise _not_written(path, error) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError | ValueError) -> CheckpointError:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CheckpointError(f"{path}: {why}; check the folder and the free space")
