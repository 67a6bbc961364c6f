"""Tables of the tracing, as text, as JSON or as a page."""

from __future__ import annotations

import math
from typing import Any

from cutaway.cli.output import console, print_json, print_table, write
from cutaway.tracing.tables import Table, report


def tell(title: str, said: str, tables: list[Table], html: str, as_json: bool) -> None:
    """What was found in words, then the tables; with `html` a page is written and its name printed."""
    if html:
        write(html, report(title, said, *tables))
        print(html)
    elif as_json:
        print_json({"said": said, "tables": [_plain(table.plain()) for table in tables]})
    else:
        console.print(said, markup=False, soft_wrap=True)
        for table in tables:
            console.print(f"\n{table.title}", style="bold", markup=False)
            print_table(table.columns, table.texts(), left=_n_words(table))
            console.print(table.note, markup=False, soft_wrap=True) if table.note else None


def _n_words(table: Table) -> int:
    """How many columns, from the left, hold words."""
    row = table.rows[0] if table.rows else ()
    return next((i for i, cell in enumerate(row) if not isinstance(cell, str)), len(row))


def _plain(data: Any) -> Any:
    """JSON has no NaN and no infinity: they are told by their names."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data
