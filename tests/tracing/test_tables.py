"""Tables and grids: as text, as data, as HTML and as pictures."""

from __future__ import annotations

import json
import struct

import pytest
import torch

from cutaway.errors import InputError
from cutaway.tracing.pictures import save, svg
from cutaway.tracing.tables import Grid, Table, report

NAN = float("nan")
GRID = Grid("Effects", ("0", "1"), ("' a'", "<b>"), torch.tensor([[1.0, -0.001], [-0.5, NAN]]), ("layer", "token"), "n")
TABLE = Table("Sizes", ("block", "stream", "ffn"), [("0", 1.0, 2.0), ("1", 500.0, 3.0)], "", (1, 2), "lines")
BARS = Table("Loss", ("token", "nats"), [("a & b", 1.0), ("c", -2.0)], "", (1,), "bars")


def test_a_grid_as_text_has_all_numbers_where_they_fit():
    assert str(GRID).splitlines() == [
        "Effects",
        "layer  0      1",
        "0       1.00  0.00",
        "1      -0.50",
        "columns: token  0 ' a'  1 <b>",
        "n",
    ]


def test_a_wide_grid_tells_the_largest_of_each_row():
    wide = Grid("Wide", ("0",), tuple(f"c{i}" for i in range(40)), torch.arange(40.0)[None] / 39)
    (row,) = wide.table(80).rows
    assert row == ("0", "c39 1.00", "c38 0.97", "c37 0.95")
    assert Grid("One", ("0",), ("c",), torch.ones(1, 1), tops=True).table().rows == [("0", "c 1.00", "", "")]


def test_data_is_json_without_nan():
    data = json.loads(json.dumps(GRID.plain(), allow_nan=False))
    assert data["values"] == [[1.0, pytest.approx(-0.001)], [-0.5, None]]
    assert data["layer"] == ["0", "1"] and data["token"] == ["' a'", "<b>"]
    table = Table("T", ("x",), [("y",)], grids=(GRID,))
    assert table.plain()["grids"] == [GRID.plain()] and table.pictures() == [GRID]


@pytest.mark.parametrize("part", [GRID, TABLE, BARS, Grid("W", ("0",), ("a",), torch.ones(1, 1), words=(("$x_2$",),))])
def test_a_picture_is_an_element_that_follows_the_pages_colour(part):
    drawn = svg(part)
    assert drawn.startswith("<svg ") and drawn.rstrip().endswith("</svg>")
    assert "currentColor" in drawn and "//" not in drawn.replace("</", "") and "<image" not in drawn
    assert svg(part) == drawn
    assert part.title in drawn


def test_a_report_needs_nothing_else():
    page = report("a & b", "said <so>", GRID, TABLE, Table("none", ("x",), [("y",)]))
    assert page.count("<svg ") == 2 and page.count("<table>") == 3
    assert "a &amp; b" in page and "said &lt;so&gt;" in page and "&lt;b&gt;" in page
    assert "//" not in page.replace("</", "") and "<script" not in page


def test_a_picture_is_written_as_its_name_ends(tmp_path):
    save([GRID, BARS], tmp_path / "p.png")
    head = (tmp_path / "p.png").read_bytes()[:24]
    assert head[:4] == b"\x89PNG"
    width, height = struct.unpack(">II", head[16:])
    assert 500 < width < 2000 and 500 < height < 2000
    save([TABLE], tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_pictures_of_one_size_stand_in_two_columns(tmp_path):
    def size(n):
        save([GRID] * n, tmp_path / "p.png")
        return struct.unpack(">II", (tmp_path / "p.png").read_bytes()[16:24])

    (width, height), below, beside = size(1), size(2), size(3)
    assert below == pytest.approx((width, 2 * height), abs=2) and beside == pytest.approx(
        (2 * width, 2 * height), abs=2
    )


@pytest.mark.parametrize(
    ("parts", "path", "message"),
    [
        ([GRID], "p.gif", "end the file's name"),
        ([Table("none", ("x",), [("y",)])], "p.png", "nothing to draw"),
        ([GRID], "nowhere/p.png", "cannot be written"),
    ],
)
def test_pictures_that_cannot_be(parts, path, message, tmp_path):
    with pytest.raises(InputError, match=message):
        save(parts, tmp_path / path)
