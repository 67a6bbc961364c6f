"""What was found in words with its tables: as text, as JSON, as a picture or as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cutaway.cli.output import console, print_json, write
from cutaway.cli.trace.subject import Out, show
from cutaway.tracing.pictures import save
from cutaway.tracing.tables import Table, report


def tell(title: str, said: str, tables: Sequence[Table], out: Out) -> None:
    """Print it, or write it into the files that were asked for and print their names."""
    if out.html:
        write(out.html, report(title, said, *tables))
    if out.png:
        save(tables, out.png)
    if out.json:
        print_json({"said": said, "tables": [_plain(table.plain()) for table in tables]})
    elif out.html or out.png:
        print("\n".join(filter(None, (out.html, out.png))))
    else:
        console.print(said, markup=False, soft_wrap=True)
        for table in tables:
            print()
            show(table)


def _plain(data: Any) -> Any:
    """JSON has no NaN and no infinity: they are told by their names."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data
