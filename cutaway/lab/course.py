"""The course as one plain value, its questions and skip tests, and the judge of their answers.

`course()` gives {"levels", "glossary", "ui", "shortcuts", "questions"}: levels with their sections and blocks (see
`content.chapter`), interface strings by key, questions by id without their answers. Formulas inside HTML are
`<span class="tex">` around TeX; words of the glossary are `<a class="term" href="#/glossary/...">`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cutaway.errors import InputError
from cutaway.lab.content import markup, skip
from cutaway.lab.content.chapter import read_chapter, walk
from cutaway.lab.content.questions import Question, Verdict, read_questions, read_toml

CONTENT = Path(__file__).parent / "content"


def course(language: str = "en") -> dict:
    """Everything the page shows, answers left out. Raises InputError for a language that has no texts."""
    texts = _texts(language)
    return {
        "levels": texts.levels,
        "questions": _public(texts),
        "glossary": texts.glossary,
        "ui": texts.ui,
        "shortcuts": texts.shortcuts,
    }


def check(question_id: str, answer: str, language: str = "en") -> Verdict:
    """Whether the answer is right, and the reason. Raises InputError for an unknown question or unreadable answer."""
    questions = _texts(language).questions
    if question_id not in questions:
        raise InputError(f"question: there is no {question_id[:40]!r}; the ids are those of the course")
    return questions[question_id].judge(answer)


def skip_test(level: str, seed: int, language: str = "en") -> list[dict]:
    """Five questions with the numbers that the seed gives: id, kind, prompt_html, options."""
    return skip.public(skip.fresh_questions(level, _skip_texts(level, language), seed))


def check_skip(level: str, seed: int, answers: dict[str, str], language: str = "en") -> dict:
    """{cleared, results: [{id, right, reason_html, value}], read: [section ids]} for the five of this seed."""
    texts = _skip_texts(level, language)
    return skip.judge(texts, skip.fresh_questions(level, texts, seed), answers)


def demo(level: str) -> str:
    """The source of the level's demo program (NumPy alone), for the learner to download and run."""
    if level not in {entry["id"] for entry in _texts("en").levels}:
        raise InputError(f"level: there is no {level[:40]!r}; the ids are those of the course")
    return (CONTENT / "demos" / _demo_name(level)).read_text(encoding="utf-8")


@dataclass(frozen=True)
class _Texts:
    levels: list[dict]
    questions: dict[str, Question]
    glossary: list[dict]
    ui: dict[str, str]
    shortcuts: list[dict]
    skip: dict[str, dict[str, dict]]


@cache
def _texts(language: str) -> _Texts:
    """All texts of one language, read once: a changed file needs a restart."""
    languages = sorted(folder.name for folder in CONTENT.iterdir() if (folder / "course.toml").is_file())
    if language not in languages:
        raise InputError(f"language: {language[:40]!r} has no texts; there are {', '.join(languages)}")
    folder = CONTENT / language
    plan = read_toml(folder / "course.toml")
    names = plan["main"] + list(plan["side"])
    questions: dict[str, Question] = {}
    for name in names:
        questions |= read_questions(folder / "questions" / f"{name}.toml")
    return _Texts(
        levels=[_level(folder, name, plan) for name in names],
        questions=questions,
        glossary=_glossary(folder / "glossary.toml"),
        ui=json.loads((folder / "ui.json").read_text(encoding="utf-8")),
        shortcuts=read_toml(folder / "shortcuts.toml")["shortcuts"],
        skip={name: skip.read_skip(folder / "skip" / f"{name}.toml") for name in names},
    )


def _level(folder: Path, name: str, plan: dict) -> dict:
    level = read_chapter(folder / "chapters" / f"{name}.md")
    before, after = _neighbours(name, plan)
    kinds = {block["type"] for section in level["sections"] for block in walk(section["blocks"])}
    return {
        **level,
        "number": _number(name, plan),
        "prev": before,
        "next": after,
        "stars": 3 if "exercise" in kinds else 2,
        "skip_test": {"questions": skip.COUNT},
        "demo": _demo_name(name),
    }


def _public(texts: _Texts) -> dict[str, dict]:
    """The questions without their answers; `label` is what a reader sees: 4.6 is the sixth of chapter 4."""
    return {
        block["id"]: {"id": block["id"], "label": f"{level['number']}.{count}", **texts.questions[block["id"]].public()}
        for level in texts.levels
        for count, block in enumerate(_questions(level), 1)
    }


def _questions(level: dict) -> list[dict]:
    blocks = (block for section in level["sections"] for block in walk(section["blocks"]))
    return [block for block in blocks if block["type"] == "question"]


def _neighbours(name: str, plan: dict) -> tuple[str | None, str | None]:
    """Previous and next chapter; a side trip lies between the chapter that it follows and the one after that."""
    main = plan["main"]
    at = main.index(plan["side"].get(name, name))
    before = at if name in plan["side"] else at - 1
    return main[before] if before >= 0 else None, main[at + 1] if at + 1 < len(main) else None


def _number(name: str, plan: dict) -> str:
    """1, 2, 3 on the main line; A, B for side trips."""
    if name in plan["main"]:
        return str(plan["main"].index(name) + 1)
    return chr(ord("A") + list(plan["side"]).index(name))


def _demo_name(level: str) -> str:
    return f"{level.replace('-', '_')}.py"


def _glossary(path: Path) -> list[dict]:
    entries = read_toml(path)
    ordered = sorted(entries, key=str.lower)
    return [{"term": term, "id": markup.slug(term), "html": markup.line(entries[term])} for term in ordered]


def _skip_texts(level: str, language: str) -> dict[str, dict]:
    texts = _texts(language).skip
    if level not in texts:
        raise InputError(f"level: there is no {level[:40]!r}; the ids are those of the course")
    return texts[level]
