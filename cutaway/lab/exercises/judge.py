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
        return Report(False, [exercise.words["stopped_early"]])
    fits = [_same(outcome, right) for outcome, right in zip(outcomes, expected, strict=True)]
    if all(fits):
        return Report(True, [exercise.words["right"].format(cases=len(fits))], len(fits), len(fits))
    first = fits.index(False)
    said = _known(exercise, outcomes) or _difference(exercise, outcomes[first], expected[first])
    name = exercise.cases[first].name
    case = exercise.words["wrong_case"].format(name=name, right=sum(fits), cases=len(fits))
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
        return exercise.words["no_function"].format(function=exercise.function, signature=exercise.signature)
    return _raised(exercise, "broken", error)


def _raised(exercise: Exercise, key: str, error: dict[str, Any]) -> str:
    if error["type"] == "MemoryError":
        return exercise.words["memory"]
    where = exercise.words["line"].format(line=error["line"]) if error.get("line") else ""
    said = {"where": where, "function": exercise.function, "type": error["type"], "text": error["text"]}
    return exercise.words[key].format_map(said)


def _difference(exercise: Exercise, outcome: dict[str, Any], right: dict[str, Any]) -> str:
    if "error" in outcome:
        return _raised(exercise, "raised", outcome["error"])
    value, expected = decode(outcome["value"]), decode(right["value"])
    missed = [name for name in exercise.spies if name not in outcome["spied"] and name in right["spied"]]
    if missed:
        return exercise.words["never_called"].format(name=missed[0])
    if isinstance(expected, tuple):
        return _difference_of_tuples(exercise, value, expected)
    return _difference_of_arrays(exercise.words, "result", value, expected) or exercise.words["source"]


def _difference_of_tuples(exercise: Exercise, value: Any, expected: tuple) -> str:
    if not isinstance(value, (tuple, list)) or len(value) != len(expected):
        return exercise.words["how_many"].format(function=exercise.function, count=len(expected))
    names = ("result_1", "result_2", "result_3")
    said = (_difference_of_arrays(exercise.words, *each) for each in zip(names, value, expected, strict=False))
    return next(text for text in said if text)


def _difference_of_arrays(words: dict[str, str], name: str, value: Any, expected: Any) -> str:
    """What is wrong with one array; "" if nothing is."""
    what = words[name]
    if value is None:
        return words["none"].format(what=what)
    numbers, expected = _numbers(value), np.asarray(expected, dtype=np.float64)
    if numbers is None:
        return words["no_numbers"].format(what=what)
    if numbers.shape != expected.shape:
        return words["shape"].format(what=what, shape=numbers.shape, expected=expected.shape)
    wrong = ~np.isclose(numbers, expected, rtol=TOLERANCE, atol=TOLERANCE)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if expected.shape else ()
    at = words["at"].format(place=list(place)) if place else ""
    key = "nan" if np.isnan(numbers[place]) else "value"
    return words[key].format(what=what, at=at, value=f"{numbers[place]:.4f}", expected=f"{expected[place]:.4f}")
