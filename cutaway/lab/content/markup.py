"""Markdown to HTML, with two additions: `$tex$` for a formula in a line and `[[term]]` for a word of the glossary."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html import escape

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline


def slug(term: str) -> str:
    """The name of a glossary entry in addresses: `#/glossary/residual-path`."""
    return re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


def html(markdown: str) -> str:
    """Whole paragraphs as HTML. Formulas become `<span class="tex">` holding TeX for the page to set."""
    return _converter().render(markdown).strip()


def line(markdown: str) -> str:
    """One line as HTML without a paragraph around it."""
    return _converter().renderInline(markdown.strip()).strip()


def terms(markdown: str) -> list[str]:
    """The glossary terms that a text points to, in their order."""
    return [found.group(1).strip() for found in _TERM.finditer(markdown)]


_MATH = re.compile(r"\$(?=\S)([^$\n`]*[^\s`$])\$")
_TERM = re.compile(r"\[\[([^\]|]+)(?:\|([^\]]+))?\]\]")


@cache
def _converter() -> MarkdownIt:
    converter = MarkdownIt("commonmark", {"html": False, "typographer": False}).enable("table")
    converter.inline.ruler.before("escape", "math", _rule("$", _MATH, _write_math))
    converter.inline.ruler.before("link", "term", _rule("[", _TERM, _write_term))
    return converter


def _write_math(found: re.Match[str]) -> str:
    return f'<span class="tex">{escape(found.group(1), quote=False)}</span>'


def _write_term(found: re.Match[str]) -> str:
    term = found.group(1).strip()
    return f'<a class="term" href="#/glossary/{slug(term)}">{escape(found.group(2) or term, quote=False)}</a>'


def _rule(start: str, pattern: re.Pattern[str], write: Callable[[re.Match[str]], str]):
    """An inline rule: where `pattern` matches, its written HTML goes through as it is."""

    def rule(state: StateInline, silent: bool) -> bool:
        if state.src[state.pos] != start:
            return False
        found = pattern.match(state.src, state.pos)
        if found is None:
            return False
        if not silent:
            state.push("html_inline", "", 0).content = write(found)
        state.pos = found.end()
        return True

    return rule
