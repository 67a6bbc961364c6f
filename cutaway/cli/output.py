"""What every command prints with: one console, and numbers as people read them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from cutaway.errors import InputError

console = Console(highlight=False)
"""Plain where it is piped or NO_COLOR is set; as wide as the terminal or COLUMNS says, else 80."""

errors = Console(stderr=True, highlight=False)
"""For progress: what is piped on holds results alone."""


def print_json(data: Any) -> None:
    """One line of JSON for programs."""
    print(json.dumps(data, ensure_ascii=False, allow_nan=False), flush=True)


def print_entry(name: str, text: str, width: int = 10) -> None:
    """A name and what it is, the text filled up beside it."""
    wrapped = textwrap.wrap(text, max(console.width - width - 2, 20)) or [""]
    for number, line in enumerate(wrapped):
        console.print(f"{'' if number else name:{width}}  {line}".rstrip(), markup=False, soft_wrap=True)


def print_table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], left: int = 1, total: bool = False) -> None:
    """Aligned columns without lines, the first `left` of them text and the rest numbers; a `total` is the last row."""
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for number, line in enumerate(lines):
        cells = (cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
        style = "bold" if number == 0 or (total and number == len(lines) - 1) else None
        console.print("  ".join(cells).rstrip(), style=style, markup=False, soft_wrap=True)


def busy(what: str) -> AbstractContextManager[Any]:
    """A sign of life on a terminal while it lasts."""
    return errors.status(what) if errors.is_terminal else nullcontext()


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal while it lasts; what is given is called with how much is done, of how much."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def reason(error: Exception) -> str:
    """Why a file could not be read or written, without its name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def check_target(path: str) -> None:
    """Raise InputError where a file cannot be written, before the work that would fill it."""
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError(f"{path}: it is a folder; name a file")
        if not file.parent.is_dir():
            raise InputError(f"{path}: cannot be written (there is no folder {file.parent}); make it first")
    except OSError as error:
        raise InputError(f"{path[:80]}: cannot be written ({reason(error)}); name another file") from None


def write(path: str, text: str) -> None:
    """Write a file; raises InputError where that cannot be, and then leaves no part of a new one."""
    file = Path(path)
    try:
        fresh = not file.exists()
        try:
            file.write_text(text, encoding="utf-8")
        except OSError:
            if fresh:
                file.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written ({reason(error)}); name another file") from None


def change(before: float, after: float) -> str:
    """The change in percent, or how many times where it is more than double."""
    if before == after or not before or not after:
        return ""
    ratio = after / before
    return f"{100 * (ratio - 1):+.1f}%" if 0.5 <= ratio <= 2 else f"× {ratio:.3g}"
