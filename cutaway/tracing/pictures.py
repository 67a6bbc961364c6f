"""Tables and grids as pictures, by matplotlib: a heat map, bars or lines."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.tracing.tables import Grid, Part, Table, shown

INK = "#010101"
"""The colour of all lines and letters; in a page it becomes that of the page's own text, dark or light."""

BLUE, RED = "#2563eb", "#dc2626"
LINES = (BLUE, RED, "#059669", "#d97706", "#7c3aed")
MOST_BARS = 40
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "cutaway", "font.size": 9, "axes.titlesize": 10, "text.parse_math": False,
    "font.family": ["sans-serif"], "axes.spines.top": False, "axes.spines.right": False,
} | {key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")}  # fmt: skip


def svg(part: Part) -> str:
    """The picture as an element of a page."""
    out = io.StringIO()
    _write([part], out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text, count=2)
    return text.replace(INK, "currentColor")


def save(parts: Sequence[Part], path: str | Path) -> None:
    """Write the pictures into a file of the kind that its name ends in (.png, .svg, .pdf): one below the other, more
    than two of one size in two columns.

    Raises InputError where there is nothing to draw, for another kind, and for a file that cannot be written.
    """
    path, drawn = Path(path), [each for part in parts for each in part.pictures()]
    check_kind(path)
    if not drawn:
        raise InputError(f"{path}: there is nothing to draw; leave the picture away")
    try:
        _write(drawn, path, dpi=150, facecolor="white")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def check_kind(path: str | Path) -> None:
    """Raise InputError for a file whose name ends in no kind of picture."""
    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"{path}: pictures are .png, .svg or .pdf; end the file's name so")


def _write(parts: Sequence[Part], target: Any, **how: Any) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    sizes = [_size(part) for part in parts]
    with warnings.catch_warnings(), matplotlib.rc_context(STYLE):
        warnings.filterwarnings("ignore", "Glyph")  # a letter that the font lacks is drawn as a box
        across = 2 if len(parts) > 2 and len(set(sizes)) == 1 else 1
        heights = [h for _, h in sizes[::across]]
        figure = Figure((across * max(w for w, _ in sizes), sum(heights)), layout="constrained")
        places = figure.subfigures(len(heights), across, squeeze=False, height_ratios=heights).flat
        for part, place in zip(parts, places, strict=False):  # of an odd number the last place stays empty
            axes = place.subplots()
            axes.set_title(part.title, loc="left")
            if isinstance(part, Grid):
                _heat(part, axes, place)
            elif part.chart == "bars":
                _bars(part, axes)
            else:
                _lines(part, axes)
        figure.savefig(target, **how)


def _size(part: Part) -> tuple[float, float]:
    """Inches."""
    if isinstance(part, Grid):
        n_rows, n_columns = part.values.shape
        cell = 0.75 if part.words else 0.34
        return min(max(3.2 + cell * n_columns, 5.0), 16.0), min(max(1.4 + 0.24 * n_rows, 2.4), 14.0)
    if part.chart == "lines":
        return 7.0, 3.6
    return 7.0, 0.9 + 0.22 * min(len(part.rows), MOST_BARS)


def _heat(grid: Grid, axes: Any, place: Any) -> None:
    from matplotlib import colormaps

    values = grid.values.double()
    known = values[~values.isnan()]
    low, high = float(known.min()), float(known.max())
    both = low < -0.05 * max(high, 1e-12)  # small overshoots of zero are no second colour
    most = max(abs(low), abs(high)) or 1.0
    bounds = (-most, most) if both else (min(low, 0.0), high if high > 0 else 1.0)
    colours = colormaps["RdBu" if both else "Blues"].resampled(47)  # a scale of 50 and more would be pixels in a page
    drawn = axes.pcolormesh(
        values.numpy(), cmap=colours, vmin=bounds[0], vmax=bounds[1], linewidth=0.4,
        edgecolors="#8884",
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_ylabel(grid.axes[0])
    axes.set_xlabel(grid.axes[1])
    _ticks(axes.set_yticks, grid.rows, 50)
    _ticks(axes.set_xticks, grid.columns, 40, upright=max(map(len, grid.columns)) > 3)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    bar = place.colorbar(drawn, ax=axes, shrink=0.8, aspect=25, pad=0.02)
    bar.outline.set_visible(False)
    bar.solids.set_edgecolor("face")  # or seams would show
    for i, row in enumerate(grid.words):
        for j, word in enumerate(row):
            share = (float(values[i, j]) - bounds[0]) / (bounds[1] - bounds[0])
            strong = abs(2 * share - 1) if both else share
            colour = "white" if strong > 0.55 else "black"
            axes.text(j + 0.5, i + 0.55, _short(word, 9), ha="center", va="center", fontsize=7, color=colour)


def _ticks(put: Any, names: Sequence[str], most: int, upright: bool = False) -> None:
    step = -(-len(names) // most)
    put([i + 0.5 for i in range(0, len(names), step)], [_short(name, 20) for name in names[::step]],
        **({"rotation": 60, "ha": "right", "rotation_mode": "anchor"} if upright else {}))  # fmt: skip


def _bars(table: Table, axes: Any) -> None:
    rows = table.rows[:MOST_BARS]
    at = table.heat[0]
    values = [float(row[at]) for row in rows]
    names = [_end("  ".join(shown(cell) for cell in row[: min(at, 2)]), 32) for row in rows]
    places = list(range(len(rows)))
    axes.barh(places, values, color=[BLUE if value >= 0 else RED for value in values], height=0.75)
    axes.set_yticks(places, names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(0, color=INK, linewidth=0.6)
    axes.set_xlabel(table.columns[at])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _lines(table: Table, axes: Any) -> None:
    places = list(range(len(table.rows)))
    for colour, at in zip(LINES, table.heat, strict=False):
        axes.plot(
            places, [row[at] for row in table.rows], color=colour, label=table.columns[at], marker="o", markersize=3,
            linewidth=1.2,
        )  # fmt: skip
    step = -(-len(places) // 12)
    axes.set_xticks(places[::step], [_short(str(row[0]), 12) for row in table.rows[::step]], rotation=30, ha="right")
    values = [row[at] for row in table.rows for at in table.heat if math.isfinite(row[at])] or [0.0]
    positive = [value for value in values if value > 0]
    if min(values) >= 0 and positive and max(values) > 30 * min(positive):
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_formatter(lambda x, _: f"{x:g}")  # the usual one writes TeX, which no text here is read as
    else:
        axes.set_ylim(bottom=min(0.0, *values))
    axes.legend(frameon=False, labelcolor=INK)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[1 - most :]
