"""A chapter's skip test: five questions with fresh numbers from a seed.

The text of each stands in `skip/<chapter>.toml` with places `«name»` for the numbers; the numbers, the right answer and
the value that each known mistake would give come from the generator of the same name in `cutaway.lab.labs.quiz`.

    ["layer-norm"]
    section = "norm"                 # what to read again after a wrong answer
    kind = "number"                  # or "shape"
    prompt = "LayerNorm turns [«word»] into which last number?"
    right = "The mean is «mean», the std is «std»."
    otherwise = "Subtract the mean, then divide by the std."
    wrong = { sample = "That divides by n - 1." }
"""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.errors import InputError
from cutaway.lab.content import markup
from cutaway.lab.content.questions import NumberQuestion, ShapeQuestion, make_question, read_toml
from cutaway.lab.labs import quiz

SEEDS = 2**32
COUNT = 5
_KEYS = {"section", "kind", "prompt", "right", "otherwise", "wrong"}


def read_skip(path: Path) -> dict[str, dict]:
    """The texts of one chapter's skip test by question. Raises InputError where they do not fit the generators."""
    texts = read_toml(path)
    names = list(quiz.generators(path.stem))
    if list(texts) != names:
        raise InputError(f"{path}: holds {', '.join(texts)}; the generators are {', '.join(names)}, in this order")
    if len(texts) != COUNT:
        raise InputError(f"{path}: {len(texts)} questions; a skip test has {COUNT}")
    for name, text in texts.items():
        if set(text) != _KEYS:
            raise InputError(f"{path}: {name}: holds {sorted(text)}; it needs exactly {', '.join(sorted(_KEYS))}")
    return texts


def fresh_questions(chapter: str, texts: dict[str, dict], seed: int) -> dict[str, NumberQuestion | ShapeQuestion]:
    """The five questions that this seed makes, by name. Raises InputError for a seed outside 0 ... 2^32 - 1."""
    if type(seed) is not int or not 0 <= seed < SEEDS:
        raise InputError(f"seed: {seed!r} is not legal; it is a whole number from 0 to {SEEDS - 1}")
    return {name: _question(chapter, name, text, seed) for name, text in texts.items()}


def public(questions: dict[str, NumberQuestion | ShapeQuestion]) -> list[dict]:
    """What the page may know of the five before they are answered."""
    return [{"id": name, **question.public()} for name, question in questions.items()]


def judge(
    texts: dict[str, dict], questions: dict[str, NumberQuestion | ShapeQuestion], answers: dict[str, str]
) -> dict:
    """Whether the test is passed, each verdict, and the sections to read: `{cleared, results, read}`."""
    unknown = set(answers) - set(questions)
    if unknown:
        raise InputError(f"answers: {min(unknown)!r} is not in this test; it asks {', '.join(questions)}")
    results = [_result(name, question, answers.get(name, "")) for name, question in questions.items()]
    wrong = [result["id"] for result in results if not result["right"]]
    return {
        "cleared": not wrong,
        "results": results,
        "read": list(dict.fromkeys(texts[name]["section"] for name in wrong)),
    }


def _result(name: str, question: NumberQuestion | ShapeQuestion, answer: str) -> dict:
    try:
        verdict = question.judge(answer)
    except InputError as error:
        return {"id": name, "right": False, "reason_html": markup.line(str(error)), "value": ""}
    return {"id": name, "right": verdict.right, "reason_html": verdict.reason, "value": verdict.value}


def _question(chapter: str, name: str, text: dict, seed: int) -> NumberQuestion | ShapeQuestion:
    fresh = quiz.fresh(chapter, name, seed)
    where = f"skip test of {chapter}, {name}"
    if set(text["wrong"]) != set(fresh.wrong):
        raise InputError(f"{where}: reasons for {sorted(text['wrong'])}, the generator gives {sorted(fresh.wrong)}")
    entry = {key: fill(text[key], fresh.values, where) for key in ("prompt", "right", "otherwise")}
    entry |= {"kind": text["kind"], "answer": fresh.answer}
    entry["wrong"] = [
        {"value": value, "reason": fill(text["wrong"][mistake], fresh.values, where)}
        for mistake, value in fresh.wrong.items()
    ]
    if text["kind"] == "number":
        entry["tolerance"] = fresh.tolerance
    made = make_question(where, entry)
    assert isinstance(made, (NumberQuestion, ShapeQuestion))
    return made


def fill(text: str, values: dict[str, str], where: str) -> str:
    """The text with each `«name»` replaced by its value. Raises InputError beginning with `where` for another name."""

    def value(found: re.Match[str]) -> str:
        if found.group(1) not in values:
            raise InputError(f"{where}: no value named {found.group(1)!r}; there are {', '.join(values)}")
        return values[found.group(1)]

    return re.sub(r"«(\w+)»", value, text)
