"""What an explanation is made of: a table of numbers, as text, as data and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers under column names; `heat`: the columns whose numbers are coloured by size in HTML."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""
    heat: tuple[int, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        """As data: one mapping a row."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "note": self.note, "rows": rows}

    def texts(self) -> list[tuple[str, ...]]:
        """Each cell as it is shown."""
        return [tuple(shown(cell) for cell in row) for row in self.rows]

    def __str__(self) -> str:
        lines = [self.columns, *self.texts()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        body = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([self.title, *body, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope=col>{escape(name)}</th>" for name in self.columns)
        most = {i: max((abs(row[i]) for row in self.rows), default=0.0) or 1.0 for i in self.heat}
        body = "".join(f"<tr>{self._cells(row, most)}</tr>" for row in self.rows)
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table><caption>{escape(self.title)}</caption><tr>{head}</tr>{body}</table>{note}"

    def _cells(self, row: Sequence[Any], most: dict[int, float]) -> str:
        cells = []
        for i, cell in enumerate(row):
            style = ""
            if i in most:
                share, hue = abs(cell) / most[i], "37 99 235" if cell >= 0 else "220 38 38"
                style = f" style='background:rgb({hue} / {0.6 * share:.2f})'"
            kind = " class=number" if isinstance(cell, (int, float)) else ""
            cells.append(f"<td{kind}{style}>{escape(shown(cell))}</td>")
        return "".join(cells)


def shown(cell: Any) -> str:
    """A number with its first three digits, all of those before the point; a word as it is."""
    if isinstance(cell, bool) or not isinstance(cell, float):
        return str(cell)
    if not 1e-3 <= abs(cell) < 1e4:
        return "0" if cell == 0 else f"{cell:.2e}"
    return f"{cell:.{max(0, 2 - math.floor(math.log10(abs(cell))))}f}"


STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1.5rem 0; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .15rem .6rem; text-align: left; white-space: pre; border-bottom: 1px solid rgb(128 128 128 / .25); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def report(title: str, *parts: Any) -> str:
    """One HTML page that needs nothing else: each part that has `_repr_html_` as that, anything else as text."""
    made = "".join(
        part._repr_html_() if hasattr(part, "_repr_html_") else f"<p>{escape(str(part))}</p>" for part in parts
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><body><h1>{escape(title)}</h1>{made}</body></html>"
    )
