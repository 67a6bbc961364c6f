"""Questions and how an answer is judged: by its value, with a reason for each likely mistake.

A file of questions is TOML, one table a question, named by the question's id:

    ["16.6"]
    kind = "number"                  # or "shape", "choice", "open"
    prompt = "How many units are on?"
    answer = 2
    tolerance = 0.005                # of a number; 0 if left out
    right = "Said when the answer is right."
    otherwise = "Said for a wrong answer that is not listed."
    wrong = [{ value = 3, reason = "Zero is not above zero." }]

A choice has `options` (id, text, reason) instead of `wrong`. An open question is not scored: `accept` lists word
beginnings of which a good answer holds one, and each `wrong` value is a word that calls for its reason.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from cutaway.errors import InputError
from cutaway.lab import grade
from cutaway.lab.content import markup

MISTAKE_TOLERANCE = 0.005  # a mistake is known again when it was rounded to two decimals


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, why (HTML), and the answer as it was read ("10x8" is read as "(10, 8)")."""

    right: bool
    reason: str
    value: str


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Option(_Record):
    id: str
    text: str
    reason: str


class _Wrong(_Record):
    reason: str = Field(min_length=1)


class WrongNumber(_Wrong):
    value: float


class WrongShape(_Wrong):
    value: list[int]


class WrongWord(_Wrong):
    value: str


class _Question(_Record):
    kind: str
    prompt: str = Field(min_length=1)

    def public(self) -> dict:
        """What the page may know before it is answered."""
        return {"kind": self.kind, "prompt_html": markup.line(self.prompt), "options": []}


class NumberQuestion(_Question):
    kind: Literal["number"]
    answer: float
    tolerance: float = 0.0
    right: str
    otherwise: str
    wrong: list[WrongNumber]

    def judge(self, answer: str) -> Verdict:
        value = grade.parse_number(answer)
        read = f"{value:.10g}"
        if _near(value, self.answer, self.tolerance):
            return Verdict(True, markup.line(self.right), read)
        nearest = min(self.wrong, key=lambda wrong: abs(value - wrong.value), default=None)
        known = nearest is not None and _near(value, nearest.value, max(self.tolerance, MISTAKE_TOLERANCE))
        return Verdict(False, markup.line(nearest.reason if known else self.otherwise), read)


class ShapeQuestion(_Question):
    kind: Literal["shape"]
    answer: list[int]
    right: str
    otherwise: str
    wrong: list[WrongShape]

    def judge(self, answer: str) -> Verdict:
        value = grade.parse_shape(answer)
        read = f"({', '.join(map(str, value))}{',' * (len(value) == 1)})"
        if value == tuple(self.answer):
            return Verdict(True, markup.line(self.right), read)
        reason = next((w.reason for w in self.wrong if value == tuple(w.value)), self.otherwise)
        return Verdict(False, markup.line(reason), read)


class ChoiceQuestion(_Question):
    kind: Literal["choice"]
    answer: str
    options: list[Option] = Field(min_length=2)

    @model_validator(mode="after")
    def _answer_is_an_option(self) -> ChoiceQuestion:
        ids = [option.id for option in self.options]
        if self.answer not in ids or len(set(ids)) != len(ids):
            raise ValueError(f"the answer {self.answer!r} must be one of the options, each named once: {ids}")
        return self

    def public(self) -> dict:
        options = [{"id": option.id, "html": markup.line(option.text)} for option in self.options]
        return {**super().public(), "options": options}

    def judge(self, answer: str) -> Verdict:
        for option in self.options:
            if option.id == answer.strip():
                return Verdict(option.id == self.answer, markup.line(option.reason), option.id)
        legal = ", ".join(option.id for option in self.options)
        raise InputError(f"answer: {answer[:40]!r} is not one of the choices; choose one of: {legal}")


class OpenQuestion(_Question):
    kind: Literal["open"]
    accept: list[str] = Field(min_length=1)
    right: str
    otherwise: str
    wrong: list[WrongWord]

    def judge(self, answer: str) -> Verdict:
        said = answer.lower()
        if not said.strip():
            raise InputError("answer: it is empty; write a word or a sentence")
        if any(word in said for word in self.accept):
            return Verdict(True, markup.line(self.right), answer.strip())
        reason = next((w.reason for w in self.wrong if w.value in said), self.otherwise)
        return Verdict(False, markup.line(reason), answer.strip())


Question = Annotated[NumberQuestion | ShapeQuestion | ChoiceQuestion | OpenQuestion, Field(discriminator="kind")]
_ANY: TypeAdapter[Question] = TypeAdapter(Question)


def read_questions(path: Path) -> dict[str, Question]:
    """All questions of a file by id. Raises InputError naming file, question and what is malformed."""
    return {id: make_question(f"{path}: question {id}", entry) for id, entry in read_toml(path).items()}


def make_question(where: str, entry: dict) -> Question:
    """One question from plain data. Raises InputError beginning with `where`."""
    try:
        return _ANY.validate_python(entry)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: {place}: {first['msg']}") from None


def read_toml(path: Path) -> dict:
    """A TOML file as plain data. Raises InputError naming the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: {error}; a TOML file is needed") from None


def _near(value: float, target: float, tolerance: float) -> bool:
    return abs(value - target) <= tolerance + 1e-9 * max(1.0, abs(target))
