"""The tour runs, and its page shows what it prints and the lines that print it."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from cutaway import tour

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "tour.md").read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S)


def test_the_page_shows_what_the_tour_prints(smollm2, capsys):
    token = tour.tour(smollm2, tour.TEXT)
    assert smollm2.decode([token]) == " Paris"
    assert "\n".join(blocks("text")) == capsys.readouterr().out


def test_the_page_shows_the_lines_that_are_run():
    lines = [line.strip() for line in inspect.getsource(tour).splitlines()]
    shown = [line.strip() for block in blocks("python") for line in textwrap.dedent(block).splitlines()]
    assert len(shown) >= 8 and [line for line in shown if line not in lines] == []


def test_the_page_shows_every_step():
    assert re.findall(r"^## (\d)", PAGE, re.M) == re.findall(r"^(\d)\.", "\n".join(blocks("text")), re.M)


def test_another_text_goes_another_way(smollm2, capsys):
    tour.tour(smollm2, "Once upon a")
    assert "' time'" in capsys.readouterr().out
