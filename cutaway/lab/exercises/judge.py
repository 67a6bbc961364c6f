"""Compares an answer's outcomes with the solution's, and finds the words for what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cutaway.lab.exercises import load
from cutaway.lab.exercises.exercise import Exercise
from cutaway.lab.worker import decode, observe

TOLERANCE = 1e-4
TOO_MUCH = "The answer asked for more memory than it may have (2 GiB)."


@dataclass(frozen=True)
class Report:
    """Whether every case passed, what is said about the first thing wrong, and how many cases passed."""

    passed: bool
    messages: list[str]
    right: int = 0
    cases: int = 0


def judge(exercise: Exercise, observed: dict[str, Any]) -> Report:
    """The report on what `worker.observe` saw, be it whole or not."""
    if "broken" in observed:
        return Report(False, [_broken(exercise, observed["broken"])])
    expected = _expected(exercise.id)
    outcomes = observed.get("cases")
    if not isinstance(outcomes, list) or len(outcomes) != len(expected):
        return Report(False, ["The answer stopped before every case was tried. Do not call exit() in it."])
    fits = [_same(outcome, right) for outcome, right in zip(outcomes, expected, strict=True)]
    if all(fits):
        return Report(True, [f"All {len(fits)} cases are right."], len(fits), len(fits))
    first = fits.index(False)
    said = _known(exercise, outcomes) or _difference(exercise, outcomes[first], expected[first])
    case = f"It is wrong with {exercise.cases[first].name}; {sum(fits)} of {len(fits)} cases are right."
    return Report(False, [said, case], sum(fits), len(fits))


@cache
def _expected(exercise_id: str) -> list[dict[str, Any]]:
    exercise = load(exercise_id)
    return _outcomes(exercise, exercise.solution)


@cache
def _mistaken(exercise_id: str) -> list[list[dict[str, Any]]]:
    exercise = load(exercise_id)
    return [_outcomes(exercise, mistake.code) for mistake in exercise.mistakes]


def _outcomes(exercise: Exercise, code: str) -> list[dict[str, Any]]:
    with np.errstate(all="ignore"):
        return observe(code, exercise.plan())["cases"]


def _known(exercise: Exercise, outcomes: list[dict[str, Any]]) -> str | None:
    """The message of the mistake that gives the same results in every case."""
    for mistake, wrong in zip(exercise.mistakes, _mistaken(exercise.id), strict=True):
        if all(_same(a, b) for a, b in zip(outcomes, wrong, strict=True)):
            return mistake.message
    return None


def _same(outcome: dict[str, Any], other: dict[str, Any]) -> bool:
    if "error" in outcome or "error" in other:
        return outcome.get("error", {}).get("type") == other.get("error", {}).get("type")
    if not _close(decode(outcome["value"]), decode(other["value"])):
        return False
    spied = other.get("spied", {})
    return all(
        name in outcome["spied"] and _close(decode(outcome["spied"][name]), decode(spied[name])) for name in spied
    )


def _close(value: Any, other: Any) -> bool:
    if isinstance(other, tuple):
        return (
            isinstance(value, (tuple, list))
            and len(value) == len(other)
            and all(_close(a, b) for a, b in zip(value, other, strict=True))
        )
    value, other = _numbers(value), _numbers(other)
    if value is None or other is None or value.shape != other.shape:
        return value is None and other is None
    return bool(np.allclose(value, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))


def _numbers(value: Any) -> np.ndarray | None:
    """The value as float64; None for what is not numbers."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _broken(exercise: Exercise, error: dict[str, Any]) -> str:
    if error["type"] == "Missing":
        return f"There is no function {exercise.function}. Define {exercise.signature}."
    if error["type"] == "MemoryError":
        return TOO_MUCH
    return f"{_where(error)}the program stops before {exercise.function} is called: {error['type']}: {error['text']}"


def _difference(exercise: Exercise, outcome: dict[str, Any], right: dict[str, Any]) -> str:
    if "error" in outcome:
        error = outcome["error"]
        if error["type"] == "MemoryError":
            return TOO_MUCH
        return f"{_where(error)}{error['type']}: {error['text']}"
    value, expected = decode(outcome["value"]), decode(right["value"])
    missed = [name for name in exercise.spies if name not in outcome["spied"] and name in right["spied"]]
    if missed:
        return f"{missed[0]} is never called. It is given: use it."
    if isinstance(expected, tuple):
        return _difference_of_tuples(exercise, value, expected)
    return _difference_of_arrays("The result", value, expected) or (
        "The result is right, but not what it was made from: the last x that the given function read is another one."
    )


def _difference_of_tuples(exercise: Exercise, value: Any, expected: tuple) -> str:
    if not isinstance(value, (tuple, list)) or len(value) != len(expected):
        return f"{exercise.function} returns {len(expected)} things: write them after return, with a comma between."
    names = ("The first result", "The second result", "The third result")
    said = (_difference_of_arrays(*each) for each in zip(names, value, expected, strict=False))
    return next(text for text in said if text)


def _difference_of_arrays(what: str, value: Any, expected: Any) -> str:
    """What is wrong with one array; "" if nothing is."""
    if value is None:
        return f"{what} is None. End the function with return."
    numbers, expected = _numbers(value), np.asarray(expected, dtype=np.float64)
    if numbers is None:
        return f"{what} is not an array of numbers."
    if numbers.shape != expected.shape:
        return f"{what} has the shape {numbers.shape}; the shape {expected.shape} was expected."
    wrong = ~np.isclose(numbers, expected, rtol=TOLERANCE, atol=TOLERANCE)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if expected.shape else ()
    at = f" at {list(place)}" if place else ""
    if np.isnan(numbers[place]):
        return f"{what} is nan{at}, where {expected[place]:.4f} was expected: somewhere 0 is divided by 0."
    return f"{what} is {numbers[place]:.4f}{at}; {expected[place]:.4f} was expected."


def _where(error: dict[str, Any]) -> str:
    return f"Line {error['line']}: " if error.get("line") else ""
