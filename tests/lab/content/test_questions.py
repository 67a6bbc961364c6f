"""How answers are judged: each question right, each listed mistake with its own reason, each slip in a file refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutaway.errors import InputError
from cutaway.lab import course
from cutaway.lab.content import markup
from cutaway.lab.content.questions import (
    ChoiceQuestion,
    NumberQuestion,
    OpenQuestion,
    ShapeQuestion,
    make_question,
    read_questions,
)

QUESTIONS = course._texts("en").questions


def right_answer(question: object) -> str:
    match question:
        case NumberQuestion():
            return f"{question.answer:.6f}"
        case ShapeQuestion():
            return str(tuple(question.answer))
        case ChoiceQuestion():
            return question.answer
        case OpenQuestion():
            return question.accept[0]
    raise AssertionError


def wrong_answers(question: object) -> list[tuple[str, str]]:
    """Each listed wrong answer as a learner types it, with the reason that must come."""
    match question:
        case ChoiceQuestion():
            return [(o.id, o.reason) for o in question.options if o.id != question.answer]
        case ShapeQuestion():
            return [("x".join(map(str, w.value)), w.reason) for w in question.wrong]
        case NumberQuestion():
            return [(f"{w.value:.10g}", w.reason) for w in question.wrong]
        case OpenQuestion():
            return [(f"I think it is {w.value}", w.reason) for w in question.wrong]
    raise AssertionError


@pytest.mark.parametrize("id", QUESTIONS)
def test_right_and_wrong(id: str) -> None:
    question = QUESTIONS[id]
    verdict = course.check(id, right_answer(question))
    assert verdict.right
    assert verdict.reason
    mistakes = wrong_answers(question)
    assert len(mistakes) >= 2, "at least two likely mistakes get a reason"
    for answer, reason in mistakes:
        verdict = course.check(id, answer)
        assert not verdict.right, answer
        assert verdict.reason == markup.line(reason), f"{answer} is caught by an earlier reason"


@pytest.mark.parametrize("id", [id for id, q in QUESTIONS.items() if not isinstance(q, ChoiceQuestion)])
def test_another_wrong_answer_gets_the_general_reason(id: str) -> None:
    question = QUESTIONS[id]
    other = {"number": "-987.25", "shape": "9x9x9x9", "open": "the weather"}[question.kind]
    verdict = course.check(id, other)
    assert not verdict.right
    assert verdict.reason == markup.line(question.otherwise)


@pytest.mark.parametrize(
    ("id", "answer", "right"),
    [
        ("16.3", "10,8", True),
        ("16.3", "(10, 8)", True),
        ("16.3", "10x8", True),
        ("16.3", "[10, 8]", True),
        ("16.3", "10 × 8", True),
        ("16.3", "8 10", False),
        ("19.4", "1.67", True),
        ("19.4", "1,67", True),
        ("19.4", "1.6667", True),
        ("19.4", "5/3", True),
        ("19.4", "1.66", False),
        ("19.4", "1.68", False),
        ("19.9", "2/3", True),
        ("19.9", "0,67", True),
        ("19.9", ".667", True),
        ("19.8", "0.7299", True),
        ("19.8", "0.7311", True),
        ("19.7", "0.8415", True),
        ("16.9", "+1", True),
        ("16.9", "1.0", True),
        ("16.9", "1.01", False),
        ("19.10", "It is RoPE, of course", True),
    ],
)
def test_what_counts_as_right(id: str, answer: str, right: bool) -> None:
    assert course.check(id, answer).right is right


@pytest.mark.parametrize(
    ("id", "answer"), [("16.2", "one"), ("16.3", "ten by eight"), ("16.1", "perhaps"), ("19.10", " "), ("16.2", "")]
)
def test_an_unreadable_answer_is_refused(id: str, answer: str) -> None:
    with pytest.raises(InputError, match="answer"):
        course.check(id, answer)


def test_the_answer_is_shown_as_it_was_read() -> None:
    assert course.check("16.3", "10x8").value == "(10, 8)"
    assert course.check("19.9", "0,5").value == "0.5"


ENTRY = {"kind": "number", "prompt": "p", "answer": 1, "right": "r", "otherwise": "o", "wrong": []}
CHOICE = {"kind": "choice", "prompt": "p", "answer": "a", "options": [{"id": "a", "text": "t", "reason": "r"}] * 2}


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (ENTRY | {"anwser": 2}, "anwser"),
        (ENTRY | {"kind": "riddle"}, "riddle"),
        (ENTRY | {"answer": "1"}, "answer"),
        (ENTRY | {"prompt": ""}, "prompt"),
        (ENTRY | {"wrong": [{"value": 3}]}, "reason"),
        (CHOICE, "each named once"),
        (CHOICE | {"answer": "c"}, "must be one of the options"),
    ],
)
def test_a_malformed_question_is_refused_by_name(entry: dict, what: str) -> None:
    with pytest.raises(InputError, match=f"somewhere.*{what}"):
        make_question("somewhere", entry)


def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match="broken.toml"):
        read_questions(file)
