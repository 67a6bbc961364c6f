"""One question's numbers, and how they are drawn and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cutaway.lab.labs import show

TWO_DECIMALS = 0.005 + 1e-9


@dataclass(frozen=True)
class Fresh:
    """`values` fill the text's places, `wrong` holds what each known mistake would give."""

    values: dict[str, str]
    answer: float | list[int]
    wrong: Mapping[str, float | list[int]]
    tolerance: float = 0.0

    def tells_mistakes_apart(self) -> bool:
        """Whether no mistake gives a number that would count as right."""
        if isinstance(self.answer, list):
            return self.answer not in self.wrong.values()
        apart = 2 * self.tolerance + 1e-6
        return all(not isinstance(value, list) and abs(value - self.answer) > apart for value in self.wrong.values())


Option = TypeVar("Option")
Generator = Callable[[np.random.Generator], Fresh]


def whole(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(rng.integers(low, high + 1))


def pick(rng: np.random.Generator, options: Sequence[Option]) -> Option:
    """One of the options."""
    return options[int(rng.integers(len(options)))]


def row(x: ArrayLike) -> str:
    """[3, 0.5]: whole numbers without a point."""
    return show.short_vector(x)


def table(x: ArrayLike) -> str:
    """[[1, 0], [0, 1]]."""
    return f"[{', '.join(row(line) for line in np.asarray(x))}]"
