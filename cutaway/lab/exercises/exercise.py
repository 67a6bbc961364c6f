"""What an exercise is made of: a program with hidden cases and known mistakes, and what is said about it."""

from __future__ import annotations

import re
import textwrap
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.errors import InputError
from cutaway.lab.worker import encode

CONTENT = Path(__file__).parents[1] / "content"


@dataclass(frozen=True)
class Case:
    """One hidden call: its arguments, global names it sets, and what it tries, in words that fit behind "with"."""

    args: tuple
    globals: dict[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer as a whole program, and what is said to whoever gives its results."""

    name: str
    code: str
    message: str = ""


@dataclass(frozen=True)
class Exercise:
    """`starter` and `solution` are whole programs; `function` is the name that is called.

    `drive` is the source of a `drive(function, *args)` where one call is not enough; `spies` are given functions whose
    last argument is compared too. The rest is said in one language: `prompt` and `hints` are Markdown, `words` what the
    judge and the runner say. In the programs `«name»` stands for a comment until `told` puts it in.
    """

    id: str
    function: str
    signature: str
    starter: str
    solution: str
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]
    drive: str = ""
    spies: tuple[str, ...] = ()
    title: str = ""
    prompt: str = ""
    hints: tuple[str, ...] = ()
    words: dict[str, str] = field(default_factory=dict)

    def plan(self) -> dict[str, Any]:
        """What `worker.observe` needs to run an answer."""
        cases = [
            {"args": encode(case.args), "globals": {name: encode(value) for name, value in case.globals.items()}}
            for case in self.cases
        ]
        return {"function": self.function, "drive": self.drive, "spies": list(self.spies), "cases": cases}


def told(exercise: Exercise, language: str) -> Exercise:
    """The exercise with its texts: those of its own file, and those that all share (`exercises.toml`)."""
    texts, shared = _read(language, f"exercises/{exercise.id}.toml"), _read(language, "exercises.toml")
    comments = shared["comments"] | texts.get("comments", {})
    messages = texts["mistakes"]
    return replace(
        exercise,
        title=texts["title"],
        prompt=texts["prompt"],
        hints=tuple(texts["hints"]),
        words=shared["said"],
        starter=_commented(exercise.starter, comments),
        solution=_commented(exercise.solution, comments),
        drive=_commented(exercise.drive, comments),
        cases=tuple(replace(case, name=name) for case, name in zip(exercise.cases, texts["cases"], strict=True)),
        mistakes=tuple(
            replace(each, code=_commented(each.code, comments), message=messages[each.name])
            for each in exercise.mistakes
        ),
    )


@cache
def _read(language: str, name: str) -> dict[str, Any]:
    file = CONTENT / language / name
    if not file.is_file():
        raise InputError(f"language: {language[:40]!r} has no {name}; each language has a folder in {CONTENT.name}")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _commented(program: str, comments: dict[str, list[str]]) -> str:
    """A line of its own becomes comment lines of at most 80 characters; within a line the text stands as it is."""

    def lines(found: re.Match[str]) -> str:
        begin = f"{found[1]}# "
        return "\n".join(
            textwrap.fill(each, 80, initial_indent=begin, subsequent_indent=begin) for each in comments[found[2]]
        )

    whole = re.sub(r"^( *)«(\w+)»$", lines, program, flags=re.MULTILINE)
    return re.sub(r"«(\w+)»", lambda m: " ".join(comments[m[1]]), whole)


def swap(program: str, *changes: tuple[str, str]) -> str:
    """The program with each (old, new) put in, so that a mistake is written as its difference from the solution."""
    for old, new in changes:
        if old not in program:
            raise ValueError(f"{old!r} is not in the program")
        program = program.replace(old, new)
    return program


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Fixed numbers with two decimals, of size about 1."""
    return np.round(np.random.default_rng(seed).normal(size=shape), 2)


def array(*rows: Any) -> np.ndarray:
    """Rows of numbers as float64."""
    return np.array(rows, dtype=np.float64)
