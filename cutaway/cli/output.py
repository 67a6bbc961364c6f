"""What every command prints with: one console, and numbers as people read them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.cells import cell_len, chop_cells
from rich.console import Console

from cutaway.errors import InputError

console = Console(highlight=False)
"""Plain where it is piped or NO_COLOR is set; as wide as the terminal or COLUMNS says, else 80."""

errors = Console(stderr=True, highlight=False)
"""For progress: what is piped on holds results alone."""

LEAST = 8
"""Columns of the terminal that a column of words keeps."""


def print_json(data: Any) -> None:
    """One line of JSON for programs."""
    print(json.dumps(data, ensure_ascii=False, allow_nan=False), flush=True)


def print_filled(text: str, first: str = "", rest: str = "", style: str | None = None) -> None:
    """A text in lines as wide as the terminal, what begins the first and the others before it."""
    for line in _lines(text, console.width, first, rest):
        console.print(line.rstrip(), style=style, markup=False, soft_wrap=True)


def print_entry(name: str, text: str, width: int = 10) -> None:
    """A name and what it is, the text filled up beside it, or below it on a narrow terminal."""
    if width + 20 <= console.width:
        print_filled(text, f"{name:{width}}  ", " " * (width + 2))
    else:
        print_filled(name)
        print_filled(text, "    ", "    ")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[int] = (0,), total: bool = False,
    listed: bool = False,
) -> None:  # fmt: skip
    """Aligned columns without lines, those of `left` words and the rest numbers; a `total` is the last row.

    Words that are too long for the terminal go on below; where even that is too wide, each field has a line. Columns
    that are `listed`, all but the first, then stay whole and follow each other.
    """
    lines = [columns, *rows]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(columns))]
    if listed and sum(widths) + 2 * len(widths) - 2 > console.width and widths[0] + 2 + 2 * LEAST <= console.width:
        _print_listed(columns, lines[1:], widths[0] + 2)
        return
    while sum(widths) + 2 * len(widths) - 2 > console.width:
        wide = [i for i in left if widths[i] > LEAST]
        if not wide:
            _print_fields(columns, lines[1:])
            return
        widths[max(wide, key=lambda i: (i > 0, widths[i]))] -= 1  # the first, a row's name, gives way last
    for number, line in enumerate(lines):
        style = "bold" if number == 0 or (total and number == len(lines) - 1) else None
        for cells in zip_longest(*(_lines(cell, width) for cell, width in zip(line, widths)), fillvalue=""):
            gaps = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths)]
            aligned = [cell + gap if i in left else gap + cell for i, (cell, gap) in enumerate(zip(cells, gaps))]
            console.print("  ".join(aligned).rstrip(), style=style, markup=False, soft_wrap=True)


def _print_listed(columns: Sequence[str], rows: Sequence[Sequence[str]], indent: int) -> None:
    """A row's name, then its cells from stop to stop; a long one passes over a stop, and a full line goes on below."""
    sizes = sorted(cell_len(cell) for row in rows for cell in row[1:])
    room, stop = console.width - indent, sizes[len(sizes) * 3 // 4] + 2  # most cells fit between two stops
    ends = [head for head in columns[1:] if head]
    for number, (name, *cells) in enumerate([(columns[0], " to ".join(dict.fromkeys(ends[:1] + ends[-1:]))), *rows]):
        lines = [""]
        for piece in (piece for cell in cells for piece in chop_cells(cell, room)):
            start = -(-cell_len(lines[-1] + " ") // stop) * stop if lines[-1] else 0
            if start + cell_len(piece) > room:
                lines.append("")
                start = 0
            lines[-1] += " " * (start - cell_len(lines[-1])) + piece
        for label, line in zip_longest([name], lines, fillvalue=""):
            text = label + " " * (indent - cell_len(label)) + line
            console.print(text.rstrip(), style=None if number else "bold", markup=False, soft_wrap=True)


def _lines(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """A text in lines of at most `width` columns of the terminal; what fits stays as it is."""
    if cell_len(first + text) <= width:
        return [first + text]
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return [piece for line in lines for piece in chop_cells(line, width)]


def _print_fields(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A row as lines of `column: value`, the first of them as its head."""
    for row in rows:
        for number, (name, cell) in enumerate(zip(columns, row)):
            if cell:
                text, head = f"{name}: {cell.strip()}" if name else cell.strip(), number == 0
                print_filled(text, "" if head else "  ", "    ", "bold" if head else None)


def busy(what: str) -> AbstractContextManager[Any]:
    """A sign of life on a terminal while it lasts."""
    return errors.status(what) if errors.is_terminal else nullcontext()


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int], None]]:
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
