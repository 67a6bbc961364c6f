"""What an explanation is made of: tables and grids of numbers, as text, as data and as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

BLUE, RED = "37 99 235", "220 38 38"
WORD = "padding:.1em .6em;text-align:left;white-space:pre"
NUMBER = "padding:.1em .6em;text-align:right;font-variant-numeric:tabular-nums"
"""Styles of cells stand on them, since a notebook has no style sheet of ours."""


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers under column names; `heat`: the columns whose numbers are coloured by size in HTML.

    `chart`: what a picture shows of them: bars of the first heat column, lines of all heat columns over the rows, or
    nothing. `grids`: heat maps that are the picture instead. `right`: columns of words that end at one line.
    `listed`: the columns after the first are a list in order, not one thing a column.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""
    heat: tuple[int, ...] = ()
    chart: Literal["none", "bars", "lines"] = "none"
    grids: tuple[Grid, ...] = ()
    right: tuple[int, ...] = ()
    listed: bool = False

    def plain(self) -> dict[str, Any]:
        """As data: one mapping a row."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        data = {"title": self.title, "note": self.note, "rows": rows}
        return data | ({"grids": [grid.plain() for grid in self.grids]} if self.grids else {})

    def pictures(self) -> list[Part]:
        """What there is to draw of it."""
        if self.grids or self.chart == "none" or not self.rows:
            return [*self.grids]
        return [self]

    def texts(self) -> list[tuple[str, ...]]:
        """Each cell as it is shown."""
        rows = [tuple(shown(cell) for cell in row) for row in self.rows]
        widths = {i: max((len(row[i]) for row in rows), default=0) for i in self.right}
        return [tuple(cell.rjust(widths.get(i, 0)) for i, cell in enumerate(row)) for row in rows]

    def __str__(self) -> str:
        lines = [self.columns, *self.texts()]
        columns = range(len(self.columns))
        widths = [max(len(line[i]) for line in lines) for i in columns]
        numbers = {i for i in columns if self.rows and all(isinstance(row[i], (int, float)) for row in self.rows)}
        body = [
            "  ".join(line[i].rjust(widths[i]) if i in numbers else line[i].ljust(widths[i]) for i in columns).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *body, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope=col style='{WORD}'>{escape(name)}</th>" for name in self.columns)
        most = {i: _largest(row[i] for row in self.rows) for i in self.heat}
        body = "".join(f"<tr>{self._cells(row, most)}</tr>" for row in self.rows)
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{escape(self.title)}</b></p><table><tr>{head}</tr>{body}</table>{note}"

    def _cells(self, row: Sequence[Any], most: dict[int, float]) -> str:
        cells = []
        for i, cell in enumerate(row):
            style = NUMBER if isinstance(cell, (int, float)) or i in self.right else WORD
            shade = _shade(cell / most[i]) if i in most else ""
            cells.append(f"<td style='{style}{shade}'>{escape(shown(cell))}</td>")
        return "".join(cells)


@dataclass(frozen=True)
class Grid:
    """Numbers [R C] under the names of their rows and columns: a heat map. NaN is a place that does not exist.

    `words`: what stands in each cell in place of its number. `axes`: what rows and columns are. `tops`: as text, the
    largest three of each row say more than all of them.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Float[Tensor, "R C"]
    axes: tuple[str, str] = ("layer", "head")
    note: str = ""
    words: tuple[tuple[str, ...], ...] = ()
    tops: bool = False

    def plain(self) -> dict[str, Any]:
        """As data; a place that does not exist is null."""
        values = [[None if math.isnan(x) else x for x in row] for row in self.values.tolist()]
        data = {"title": self.title, "note": self.note, self.axes[0]: self.rows, self.axes[1]: self.columns}
        return data | {"values": values} | ({"words": self.words} if self.words else {})

    def table(self, width: int = 80) -> Table:
        """As rows of text: all numbers where they fit into `width` columns, else the largest three of each row."""
        label = max(len(self.axes[0]), *(len(row) for row in self.rows), 1)
        numbers = [["" if math.isnan(x) else fixed(x) for x in row] for row in self.values.tolist()]
        cell = max(len(x) for row in numbers for x in row)
        if not self.tops and label + len(self.columns) * (2 + max(cell, len(str(len(self.columns))))) <= width:
            heads = tuple(str(i) for i in range(len(self.columns)))
            rows = [(name, *row) for name, row in zip(self.rows, numbers, strict=True)]
            note, right = "\n".join(filter(None, (self._legend(), self.note))), tuple(range(1, len(heads) + 1))
            return Table(self.title, (self.axes[0], *heads), rows, note, right=right)
        rows = [(name, *self._tops(row)) for name, row in zip(self.rows, self.values, strict=True)]
        return Table(self.title, (self.axes[0], self.axes[1], "", ""), rows, self.note, listed=True)

    def pictures(self) -> list[Part]:
        """Itself."""
        return [self]

    def _legend(self) -> str:
        """Which column is which, unless the names are the numbers."""
        if self.columns == tuple(str(i) for i in range(len(self.columns))):
            return f"columns: {self.axes[1]}"
        return f"columns: {self.axes[1]}  " + "  ".join(f"{i} {name}" for i, name in enumerate(self.columns))

    def _tops(self, row: Tensor) -> list[str]:
        found = row.nan_to_num(-float("inf")).topk(min(3, len(row)))
        cells = [
            f"{self.columns[int(i)]} {fixed(float(x))}" if x > 0.005 else ""
            for x, i in zip(found.values, found.indices, strict=True)
        ]
        return cells + [""] * (3 - len(cells))

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope=col>{escape(name)}</th>" for name in self.columns)
        most = float(self.values.nan_to_num(0.0).abs().max()) or 1.0
        body = []
        for i, (name, row) in enumerate(zip(self.rows, self.values.tolist(), strict=True)):
            cells = "".join(self._cell(x, most, self.words[i][j] if self.words else "") for j, x in enumerate(row))
            body.append(f"<tr><th scope=row style='{WORD}'>{escape(name)}</th>{cells}</tr>")
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<p><b>{escape(self.title)}</b></p><table><tr><th></th>{head}</tr>{''.join(body)}</table>{note}"

    def _cell(self, x: float, most: float, word: str) -> str:
        if math.isnan(x):
            return "<td></td>"
        return f"<td style='{NUMBER}{_shade(x / most)}' title='{x:.4g}'>{escape(word or fixed(x))}</td>"


Part = Table | Grid


def _largest(values: Iterable[float]) -> float:
    """The largest size among finite numbers, 1 where that is 0."""
    return max((abs(x) for x in values if math.isfinite(x)), default=0.0) or 1.0


def _shade(share: float) -> str:
    """The colour of a cell: blue above zero, red below, paler the smaller; none for NaN and infinities."""
    if not math.isfinite(share):
        return ""
    return f";background:rgb({BLUE if share >= 0 else RED} / {0.6 * abs(share):.2f})"


def readable(text: str) -> str:
    """A text in which what no page, picture or terminal can show, or would obey, is written out, as `\\x1b`."""
    return text if text.isprintable() else "".join(x if x.isprintable() else repr(x)[1:-1] for x in text)


def fixed(x: float) -> str:
    """Two digits after the point; zero has no sign."""
    return f"{x:.2f}" if abs(x) >= 0.005 else "0.00"


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
div { display: flex; flex-wrap: wrap; gap: 1rem; }
svg { flex: 0 1 auto; max-width: 100%; height: auto; margin: 1rem 0; }
svg:not(:only-child) { max-width: calc(50% - .5rem); }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .15rem .6rem; text-align: left; white-space: pre; border-bottom: 1px solid rgb(128 128 128 / .25); }
p { white-space: pre-line; }
"""


def report(title: str, *parts: Any) -> str:
    """One HTML page that needs nothing else: tables and grids with their pictures, anything else as text."""
    from cutaway.tracing.pictures import svg

    made = []
    for part in parts:
        if not isinstance(part, (Table, Grid)):
            made.append(part._repr_html_() if hasattr(part, "_repr_html_") else f"<p>{escape(str(part))}</p>")
            continue
        note = f"<p>{escape(part.note)}</p>" if part.note else ""
        state = "" if isinstance(part, Grid) else " open"
        body = f"<details{state}><summary>Numbers</summary>{part._repr_html_()}</details>"
        drawn = "".join(svg(each) for each in part.pictures())
        made.append(f"<div>{drawn}</div>{'' if state else note}{body}")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style><body><h1>{escape(title)}</h1>{''.join(made)}</body></html>"
    )
