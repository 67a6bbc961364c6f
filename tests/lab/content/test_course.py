"""The course as a whole: every reference leads somewhere, locks open in order, nothing gives an answer away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.errors import InputError
from cutaway.lab import course
from cutaway.lab.content import markup
from cutaway.lab.content.chapter import walk
from cutaway.lab.exercises import IDS as EXERCISES
from cutaway.lab.labs import IDS, run

COURSE = course.course()
LEVELS = {level["id"]: level for level in COURSE["levels"]}
LOCKS = {
    "16-1": {"16.1"},
    "16-2": {"16.2", "16.3", "16.4"},
    "16-3": {"16.5", "16.6", "16.7"},
    "16-4": {"16.5", "16.6", "16.7"},
    "16-5": {"16.8", "16.9", "16.10", "layer-norm"},
    "16-6": {"ffn-sublayer"},
    "16-7": {"16.11"},
    "16-8": {"16.12"},
    "19-1": {"19.1"},
    "19-2": {"19.2"},
    "19-3": {"19.3"},
    "19-4": {"19.4", "rms-norm"},
    "19-5": {"19.5"},
    "19-6": {"19.6", "19.7", "rotate"},
    "19-7": {"19.8"},
    "19-8": {"19.9", "swiglu"},
}
SCORED = {f"16.{n}" for n in range(1, 13)} | {f"19.{n}" for n in range(1, 10)} | {f"TBB.{n}" for n in range(1, 6)}


def blocks(level: dict) -> Iterator[dict]:
    for section in level["sections"]:
        yield from walk(section["blocks"])


def top_blocks(level: dict) -> list[dict]:
    return [block for section in level["sections"] for block in section["blocks"]]


def reached(level: dict, done: set[str]) -> list[dict]:
    """The blocks in front of the first closed lock, and that lock."""
    seen = []
    for block in top_blocks(level):
        seen.append(block)
        if block["type"] == "lock" and not set(block["after"]) <= done:
            break
    return seen


def asked(blocks: list[dict]) -> list[str]:
    return [block["id"] for block in walk(blocks) if block["type"] in ("question", "exercise")]


def test_the_value_is_plain_json() -> None:
    assert json.loads(json.dumps(COURSE)) == COURSE
    assert set(COURSE) == {"levels", "questions", "glossary", "ui", "shortcuts"}


def test_all_locks_are_those_of_the_pages() -> None:
    locks = {
        block["id"]: set(block["after"])
        for level in LEVELS.values()
        for block in blocks(level)
        if block["type"] == "lock"
    }
    assert locks == LOCKS


@pytest.mark.parametrize("level", ["parts", "modern"])
def test_locks_open_in_order_and_none_early(level: str) -> None:
    """Answering what can be seen, one thing at a time, opens every lock at its own last answer."""
    done: set[str] = set()
    opened: list[str] = []
    while True:
        seen = reached(LEVELS[level], done)
        left = [id for id in asked(seen) if id not in done]
        if not left:
            break
        lock = seen[-1]
        done.add(left[0])
        after = reached(LEVELS[level], done)
        if lock["type"] == "lock" and set(lock["after"]) <= done:
            assert len(after) > len(seen)
            opened += [
                block["id"]
                for block in after[len(seen) - 1 :]
                if block["type"] == "lock" and set(block["after"]) <= done
            ]
        else:
            assert len(after) == len(seen), "a lock opened before its own answers were given"
    assert opened == [lock for lock in LOCKS if lock.startswith({"parts": "16", "modern": "19"}[level])]
    assert len(reached(LEVELS[level], done)) == len(top_blocks(LEVELS[level]))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_needs_each_of_its_answers(lock: str) -> None:
    level = next(level for level in LEVELS.values() if any(block.get("id") == lock for block in blocks(level)))
    everything = set(asked(top_blocks(level)))
    for missing in LOCKS[lock]:
        seen = reached(level, everything - {missing})
        assert seen[-1]["type"] == "lock"
        assert missing in seen[-1]["after"]
        assert missing in asked(seen), "what a lock asks for stands in front of it"


def test_each_question_is_asked_once_and_each_asked_one_exists() -> None:
    ids = [block["id"] for level in LEVELS.values() for block in blocks(level) if block["type"] == "question"]
    assert ids == list(COURSE["questions"])
    assert sorted(ids) == sorted(course._texts("en").questions)
    assert COURSE["questions"]["16.6"]["label"] == f"{LEVELS['parts']['number']}.6"
    assert set(ids) >= SCORED
    assert [id for id in ids if COURSE["questions"][id]["kind"] == "open"] == ["19.10"]


def test_answers_do_not_leave_with_the_course() -> None:
    for question in COURSE["questions"].values():
        assert set(question) == {"id", "label", "kind", "prompt_html", "options"}
        assert all(set(option) == {"id", "html"} for option in question["options"])
        assert bool(question["options"]) == (question["kind"] == "choice")


def test_every_lab_stands_in_a_chapter_and_runs_with_the_state_it_is_given() -> None:
    labs = [block for level in LEVELS.values() for block in blocks(level) if block["type"] == "lab"]
    for block in labs:
        assert run(block["lab"], block["state"])["text"]
        assert block["title"]
        assert block["caption"]
    assert {block["lab"] for block in labs} == set(IDS)


def test_every_exercise_stands_in_one_chapter() -> None:
    found = [block["id"] for level in LEVELS.values() for block in blocks(level) if block["type"] == "exercise"]
    assert sorted(found) == sorted(EXERCISES)


def test_every_word_of_the_glossary_is_used_and_every_used_word_is_there() -> None:
    files = [*(course.CONTENT / "en").rglob("*.md"), *(course.CONTENT / "en").rglob("*.toml")]
    texts = [re.sub(r"^\[\[.*\]\]$|^# .*", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE) for file in files]
    used = {term.lower() for text in texts for term in markup.terms(text)}
    there = {entry["term"].lower() for entry in COURSE["glossary"]}
    assert used == there
    assert len({entry["id"] for entry in COURSE["glossary"]}) == len(COURSE["glossary"])


def test_every_address_leads_to_a_chapter_a_section_or_a_word() -> None:
    sections = {f"#/{level['id']}/{section['id']}" for level in LEVELS.values() for section in level["sections"]}
    words = {f"#/glossary/{entry['id']}" for entry in COURSE["glossary"]}
    known = sections | words | {f"#/{level}" for level in LEVELS}
    addresses = set(re.findall(r'href=\\"([^"\\]*)\\"', json.dumps(COURSE)))
    assert addresses
    assert addresses <= known


def test_chapters_are_whole() -> None:
    for level in LEVELS.values():
        kinds = {block["type"] for block in blocks(level)}
        assert {"html", "formula", "question", "lab", "example", "fold", "model"} <= kinds, level["id"]
        folds = {block["kind"] for block in blocks(level) if block["type"] == "fold"}
        assert folds == {"stuck", "deeper"}, level["id"]
        assert len([block for block in blocks(level) if block["type"] == "question"]) >= 3
        assert all(len(level[part]) >= 2 for part in ("goals", "recap", "keep", "mistakes"))
        ids = [section["id"] for section in level["sections"]]
        assert len(set(ids)) == len(ids)
        assert set(level["side_trips"]) <= set(LEVELS)
        assert level["title"]
        assert level["lead"]


def test_next_and_previous_make_one_way_through() -> None:
    main = [level for level in LEVELS.values() if level["number"].isdigit()]
    assert [level["number"] for level in main] == [str(n + 1) for n in range(len(main))]
    assert main[0]["prev"] is None
    assert main[-1]["next"] is None
    for before, after in zip(main, main[1:], strict=False):
        assert (before["next"], after["prev"]) == (after["id"], before["id"])
    for level in LEVELS.values():
        if not level["number"].isdigit():
            assert LEVELS[level["prev"]]["next"] == level["next"]
            assert level["id"] in LEVELS[level["prev"]]["side_trips"]


def test_formulas_are_balanced() -> None:
    text = json.dumps(COURSE)
    for tex in re.findall(r'\\"tex\\">(.*?)</span>', text) + [
        block["tex"] for level in LEVELS.values() for block in blocks(level) if block["type"] == "formula"
    ]:
        assert tex.count("{") == tex.count("}")
        assert "$" not in tex
    assert "$" not in re.sub(r"<code.*?</code>", "", text.replace("\\n", " ")), "a formula was not closed"


def test_interface_strings() -> None:
    assert all(isinstance(text, str) and text for text in COURSE["ui"].values())
    assert all(set(entry) == {"keys", "text"} for entry in COURSE["shortcuts"])


def test_an_unknown_name_is_refused_by_name() -> None:
    for call, name in (
        (lambda: course.check("99.9", "1"), "99.9"),
        (lambda: course.course("tlh"), "tlh"),
        (lambda: course.skip_test("nowhere", 0), "nowhere"),
        (lambda: course.demo("../../errors"), "errors"),
    ):
        with pytest.raises(InputError, match=re.escape(name)):
            call()


def test_a_demo_is_handed_out_as_source() -> None:
    assert course.demo("parts") == (Path(course.__file__).parent / "content" / "demos" / "parts.py").read_text()
