"""The file being written: its definitions, each once, and what a class of it looks like."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from dataclasses import dataclass

WIDTH = 80


class File:
    """Functions and classes in the order in which they are needed. Equal ones are written once.

    Their names are settled at the end, when it is known how many want the same: until then a mark stands for each.
    """

    def __init__(self) -> None:
        self.wishes: dict[str, tuple[str, ...]] = {}

    def define(self, text: str, *names: str) -> str:
        """The mark of this definition, in whose text `SELF` is its own name; `names`: the shortest, the fullest."""
        self.wishes.setdefault(text, names)
        return f"⟨{list(self.wishes).index(text)}⟩"

    def text(self) -> str:
        """All definitions, named."""
        names = self._names()
        named = (text.replace("SELF", name) for text, name in zip(self.wishes, names, strict=True))
        text = re.sub(r"⟨(\d+)⟩", lambda mark: names[int(mark[1])], "\n\n\n".join(named))
        return re.sub(r"( +self\.blocks\.)extend\(\[\n +(.+)\n +\]\)", _appended, text)

    def _names(self) -> list[str]:
        wanted = Counter(names[0] for names in self.wishes.values())
        chosen: list[str] = []
        for names in self.wishes.values():
            name = names[0] if wanted[names[0]] == 1 else names[-1]
            taken = sum(re.fullmatch(re.escape(name) + r"\d*", other) is not None for other in chosen)
            chosen.append(f"{name}{taken + 1}" if taken else name)
        return chosen


def _appended(extend: re.Match[str]) -> str:
    """A list extended by one block, in one line where it fits."""
    line = f"{extend[1]}append({extend[2]})"
    return line if len(line) <= WIDTH else extend[0]


@dataclass(frozen=True)
class Part:
    """A module as the file has it: the expression that makes it, and what its forward takes beside x."""

    make: str
    takes: tuple[str, ...] = ()

    def call(self, name: str, x: str) -> str:
        return f"{name}({', '.join((x, *self.takes))})"


def module(doc: str, attributes: list[str], forward: list[str], takes: str = "x", init: str = "") -> str:
    """The text of a class: `attributes` are the statements of its __init__, which takes `init`."""
    lines = ["class SELF(nn.Module):", *indented(docstring(doc)), ""]
    if attributes:
        signature = f"self, {init}" if init else "self"
        lines += [f"    def __init__({signature}):", "        super().__init__()", *indented(attributes, 8), ""]
    lines += [f"    def forward(self, {takes}):", *indented(forward, 8)]
    return "\n".join(lines)


def function(signature: str, doc: str, body: list[str]) -> str:
    """The text of a function."""
    return "\n".join([f"def SELF({signature}):", *indented(docstring(doc)), *indented(body)])


def docstring(text: str) -> list[str]:
    """A docstring in lines; a blank line and a list may follow its sentence."""
    if len(text) + 6 <= WIDTH - 4 and "\n" not in text:
        return [f'"""{text}"""']
    first, *rest = text.split("\n")
    return ['"""' + (lines := textwrap.wrap(first, WIDTH - 7))[0], *lines[1:], *rest, '"""']


def indented(lines: list[str], by: int = 4) -> list[str]:
    return [" " * by + line if line else "" for line in lines]


def nested(target: str, start: str, wrappers: list[str], ending: str = "{}") -> list[str]:
    """`target = ending(wrapper(... start))` in as few lines as fit; each `{}` takes what is inside."""
    lines, inner = [], start
    for wrapper in wrappers:
        if len(f"{target} = {ending.format(wrapper.format(inner))}") > WIDTH - 8:
            lines.append(f"update = {inner}")
            inner = "update"
        inner = wrapper.format(inner)
    return [*lines, f"{target} = {ending.format(inner)}"]


def returned(lines: list[str], name: str = "x") -> list[str]:
    """Lines whose last assignment is what they return, where it can be said in one line."""
    *before, last = lines or [""]
    plain = last.startswith(f"{name} = ")
    return [*before, last.replace(f"{name} = ", "return ", 1)] if plain else [*lines, f"return {name}"]


def number(value: float) -> str:
    """A number as one writes it: 1e-5, 0.5, 10000.0."""
    return re.sub(r"e([+-])0?(\d)", lambda e: f"e{e[1].replace('+', '')}{e[2]}", repr(value))


def linear(d_in: int, d_out: int, bias: bool) -> str:
    return f"nn.Linear({d_in}, {d_out}{'' if bias else ', bias=False'})"


def shape(*sizes: int | str) -> str:
    """The comment that tells a shape."""
    return "  # " + " ".join(map(str, sizes))
