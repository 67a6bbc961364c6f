"""An answer of tables and grids: as text, as JSON, as a picture or as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cutaway.cli.options import Out
from cutaway.cli.output import console, print_filled, print_json, print_table, write
from cutaway.tracing.pictures import save
from cutaway.tracing.tables import Grid, Part, report


def tell(title: str, asked: str, parts: Sequence[Part], out: Out, found: str = "") -> None:
    """Print what was found, or write it into the files that were asked for and print their names.

    `asked`: of what model and text; `found`: the answer in words, where there is one beside the tables.
    """
    said = f"{asked}: {found}" if found else asked
    if out.html:
        write(out.html, report(title, said, *parts))
    if out.png:
        save(parts, out.png)
    if out.json:
        print_json({"title": title, "said": said, "tables": [_plain(part.plain()) for part in parts]})
    elif out.files:
        print("\n".join(out.files))
    else:
        if found:
            print_filled(said)
        for number, part in enumerate(parts):
            print("\n" * bool(found or number), end="")
            _show(part)


def _show(part: Part) -> None:
    """Print a table or a grid within the width of the terminal."""
    table = part.table(console.width) if isinstance(part, Grid) else part
    numbers = [not any(isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    for i in table.right:
        numbers[i] = True
    print_filled(table.title, style="bold")
    left = [i for i, right in enumerate(numbers) if not right]
    print_table(table.columns, table.texts(), left, listed=table.listed)
    for line in table.note.splitlines():
        print_filled(line, rest="  ")


def _plain(data: Any) -> Any:
    """JSON has no NaN and no infinity: they are told by their names."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data
