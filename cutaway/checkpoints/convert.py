"""Checkpoints from one format into another, a tensor at a time: a file larger than the memory can be converted.

Nothing that is half written can be mistaken for a model: all is written aside and takes its place in one step.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from filelock import FileLock

from cutaway.checkpoints import convert_gguf, convert_hf
from cutaway.checkpoints.export import fit_gguf, fit_hf
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.written import Written
from cutaway.errors import CheckpointError

Format = Literal["hf", "gguf"]


def convert(source: str | Path, to: Format, out: str | Path, dtype: str = "", family: str = "") -> Written:
    """Write the checkpoint at `source` as a Hugging Face folder `out`, or as a GGUF file in the folder `out`.

    `dtype` is the type of the weights in GGUF's names (F32, BF16, F16; in GGUF also Q8_0, Q4_0, ...), empty: as they
    are stored. In GGUF vectors and small tables stay F32, and rows that are no whole blocks become F16. `family` names
    the model type or architecture to write; else the source's own is tried first. What is written is read back before
    it takes its place.

    Raises CheckpointError where nothing of that format can hold the model, with the list of what does not fit, and for
    an `out` that already holds something.

    >>> import tempfile, cutaway
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cutaway.load("llama-tiny").save(f"{folder}/own")
    ...     done = cutaway.convert(f"{folder}/own", "hf", f"{folder}/hf", family="llama")
    ...     done.label, cutaway.load(f"{folder}/hf", tokenizer=False).spec.d_model
    ('llama', 64)
    """
    if to not in ("hf", "gguf"):
        raise CheckpointError(f"{to}: no format to convert to; known are hf and gguf")
    out = Path(out)
    _check_free(out)
    opened = open_checkpoint(source)
    _ = opened.match  # what is missing shows before anything is written
    prefer = family or opened.label
    target = (fit_hf if to == "hf" else fit_gguf)(opened.record, prefer)
    if family and target.label != family:
        raise CheckpointError(f"{source}: it does not fit {family}, but {target.label}; leave the family out")
    with aside(out) as part:
        write = convert_hf.write if to == "hf" else convert_gguf.write
        written = write(opened, target, part, dtype)
        again = open_checkpoint(part)
        _ = again.match
        written.note_generation(opened.record.generation, again.record.generation)
    written.path = out
    return written


@contextmanager
def aside(out: Path) -> Generator[Path, None, None]:
    """A folder beside `out` that becomes `out` when all went well; else nothing is left, and leftovers are cleared.

    Raises CheckpointError where `out` already holds something or cannot be written.
    """
    part = out.with_name(f".{out.name}.part")
    lock = FileLock(out.with_name(f".{out.name}.lock"))
    try:
        _check_free(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()  # where nothing can be written, the lock would wait for ever
        with lock:
            try:
                shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
                part.mkdir()
                yield part
                if out.is_dir():
                    out.rmdir()
                part.rename(out)
            finally:
                shutil.rmtree(part, ignore_errors=True)
                Path(lock.lock_file).unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{out}: {error.strerror or error}; check the folder and the free space") from error


def _check_free(out: Path) -> None:
    """Raise CheckpointError where a name can be no new folder, before any work is done."""
    try:
        out.lstat()
        taken = out.is_symlink() or not out.is_dir() or any(out.iterdir())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(f"{str(out)[:80]}: {reason}; name a new folder") from None
    if taken:
        raise CheckpointError(f"{out}: there is something already; name a new folder")
