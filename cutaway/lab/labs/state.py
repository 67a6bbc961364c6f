"""A lab's state, read one value at a time and checked where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.errors import InputError
from cutaway.reference.functions import Array


class State:
    """The given values over a lab's defaults. Every method raises InputError: lab, key, value, and what is legal."""

    def __init__(self, lab: str, default: dict[str, Any], given: Any) -> None:
        if not isinstance(given, dict):
            raise InputError(f"lab {lab}: a state is an object of named values, not {_shown(given)}")
        for key in given:
            if key not in default:
                raise InputError(f"lab {lab}: it has no {_shown(key)}; its state holds {', '.join(default)}")
        self.lab = lab
        self.values = {**default, **given}

    def refuse(self, key: str, legal: str) -> InputError:
        """The error that says what the key's value may be."""
        return InputError(f"lab {self.lab}: {key} is {_shown(self.values[key])}; it must be {legal}")

    def number(self, key: str, low: float, high: float) -> float:
        """A number within low ... high."""
        value = self.values[key]
        if not _is_number(value) or not low <= value <= high:
            raise self.refuse(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, key: str, low: int, high: int, step: int = 1) -> int:
        """A whole number within low ... high that is a multiple of step."""
        value = self.values[key]
        if not _is_number(value) or not low <= value <= high or value % step:
            kind = "a whole number" if step == 1 else f"a multiple of {step}"
            raise self.refuse(key, f"{kind} from {low} to {high}")
        return int(value)

    def flag(self, key: str) -> bool:
        """True or false."""
        if not isinstance(self.values[key], bool):
            raise self.refuse(key, "true or false")
        return self.values[key]

    def choice(self, key: str, options: Sequence[str]) -> str:
        """One of the options."""
        value = self.values[key]
        if not isinstance(value, str) or value not in options:
            raise self.refuse(key, f"one of {', '.join(options)}")
        return value

    def choices(self, key: str, options: Sequence[str]) -> list[str]:
        """A list of some of the options, in their order, each once."""
        value = self.values[key]
        if not isinstance(value, list) or any(not isinstance(item, str) or item not in options for item in value):
            raise self.refuse(key, f"a list of some of {', '.join(options)}")
        return [option for option in options if option in value]

    def array(self, key: str, shape: tuple[int, ...], limit: float) -> Array:
        """Lists of numbers of exactly this shape, each from -limit to limit."""
        legal = f"{'x'.join(map(str, shape))} numbers from {-limit:g} to {limit:g}"
        if not _has_shape(self.values[key], shape):
            raise self.refuse(key, legal)
        array = np.asarray(self.values[key], dtype=np.float64)
        if not (np.abs(array) <= limit).all():
            raise self.refuse(key, legal)
        return array


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _has_shape(value: Any, shape: tuple[int, ...]) -> bool:
    if not shape:
        return _is_number(value) and abs(value) < 1e300
    return isinstance(value, list) and len(value) == shape[0] and all(_has_shape(item, shape[1:]) for item in value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
