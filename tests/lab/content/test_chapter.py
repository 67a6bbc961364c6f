"""The chapter format: what it gives, and that each slip is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutaway.errors import InputError
from cutaway.lab.content import markup
from cutaway.lab.content.chapter import read_chapter

HEAD = '+++\ntitle = "T"\nlead = "L $x$"\nside_trips = []\n+++\n'
LISTS = "## goals\n- a\n  b\n- c\n## recap\n- r\n## keep\n- k\n## mistakes\n- m\n"


def chapter(tmp_path: Path, body: str, head: str = HEAD, lists: str = LISTS) -> dict:
    file = tmp_path / "small.md"
    file.write_text(f"{head}\n{body}\n{lists}", encoding="utf-8")
    return read_chapter(file)


def test_a_chapter_is_read(tmp_path: Path) -> None:
    body = """## one | 1. One *more*

Text with $a < b$ and [[pre-norm|a word]].

::: question 1.1
::: exercise layer-norm
::: lock 1-1 | 1.1 layer-norm
::: model ffn
::: formula Mean
\\bar{x}
:::
::: lab rope | Turn
Move it.
state: {"m": 2}
:::
::: table Two
| a | b |
|---|---|
| 1 | $c$ |
:::
::: fold stuck | Why?
Because.

::: example
1 + 1 = 2
:::
:::
"""
    read = chapter(tmp_path, body)
    assert read["id"] == "small"
    assert read["lead"] == 'L <span class="tex">x</span>'
    assert read["goals"] == ["a b", "c"]
    assert read["sections"][0]["title"] == "1. One <em>more</em>"
    html, *rest = read["sections"][0]["blocks"]
    assert html["html"].startswith('<p>Text with <span class="tex">a &lt; b</span> and <a class="term"')
    assert 'href="#/glossary/pre-norm">a word</a>' in html["html"]
    assert rest == [
        {"type": "question", "id": "1.1"},
        {"type": "exercise", "id": "layer-norm"},
        {"type": "lock", "id": "1-1", "after": ["1.1", "layer-norm"]},
        {"type": "model", "part": "ffn"},
        {"type": "formula", "tex": "\\bar{x}", "label": "Mean"},
        {"type": "lab", "lab": "rope", "title": "Turn", "caption": "Move it.", "state": {"m": 2}},
        {"type": "table", "caption": "Two", "head": ["a", "b"], "rows": [["1", '<span class="tex">c</span>']]},
        {
            "type": "fold",
            "kind": "stuck",
            "title": "Why?",
            "blocks": [{"type": "html", "html": "<p>Because.</p>"}, {"type": "example", "html": "<p>1 + 1 = 2</p>"}],
        },
    ]


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        ("text", 7, "before the first"),
        ("## one", 7, "2 parts"),
        ("## one | One\n::: circus\n:::", 8, "unknown directive 'circus'"),
        ("## one | One\n::: fold stuck | T\ntext", 8, "never closed"),
        ("## one | One\n::: fold maybe | T\n:::", 8, "unknown fold 'maybe'"),
        ("## one | One\n::: fold stuck | T\n::: lock a | b\n:::", 9, "cannot stand in a fold"),
        ("## one | One\n::: lock a", 8, "2 parts"),
        ("## one | One\n::: lab rope | T\nc\nstate: {m}\n:::", 8, "not JSON"),
        ("## one | One\n::: table T\n| a | b |\n|---|---|\n| 1 |\n:::", 8, "same length"),
        ("## one | One\n:::", 8, "closes nothing"),
    ],
)
def test_a_slip_is_refused_with_its_line(tmp_path: Path, body: str, line: int, what: str) -> None:
    with pytest.raises(InputError, match=rf"small\.md:{line}: .*{what}"):
        chapter(tmp_path, body)


@pytest.mark.parametrize(
    ("head", "lists", "what"),
    [
        ("", LISTS, "begins with a TOML head"),
        ("+++\ntitle = \n+++\n", LISTS, "not TOML"),
        (HEAD.replace("lead", "laed"), LISTS, "needs exactly title, lead, side_trips"),
        (HEAD.replace("[]", "7"), LISTS, "needs exactly"),
        (HEAD, LISTS.replace("## keep\n- k\n", ""), "no section '## keep'"),
        (HEAD, LISTS.replace("- k", "k"), "this section is a list"),
    ],
)
def test_a_missing_or_broken_part_is_refused(tmp_path: Path, head: str, lists: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        chapter(tmp_path, "## one | One", head, lists)


def test_no_html_gets_through() -> None:
    assert "<script" not in markup.html("a <script>alert(1)</script> $<img>$ [[<b>]]")
    assert markup.line("costs $5 and `$x$`") == "costs $5 and <code>$x$</code>"
