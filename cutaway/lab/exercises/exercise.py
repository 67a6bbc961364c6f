"""What an exercise is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutaway.lab.worker import encode


@dataclass(frozen=True)
class Case:
    """One hidden call: what it tries, in words that fit behind "with", its arguments, and global names it sets."""

    name: str
    args: tuple
    globals: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer as a whole program, and what is said to whoever gives its results."""

    name: str
    code: str
    message: str


@dataclass(frozen=True)
class Exercise:
    """`prompt` is Markdown; `starter` and `solution` are whole programs; `function` is the name that is called.

    `drive` is the source of a `drive(function, *args)` where one call is not enough; `spies` are given functions whose
    last argument is compared too.
    """

    id: str
    title: str
    function: str
    signature: str
    prompt: str
    starter: str
    solution: str
    hints: tuple[str, ...]
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]
    drive: str = ""
    spies: tuple[str, ...] = ()

    def plan(self) -> dict[str, Any]:
        """What `worker.observe` needs to run an answer."""
        cases = [
            {"args": encode(case.args), "globals": {name: encode(value) for name, value in case.globals.items()}}
            for case in self.cases
        ]
        return {"function": self.function, "drive": self.drive, "spies": list(self.spies), "cases": cases}


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
