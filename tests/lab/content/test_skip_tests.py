"""Each chapter's skip test: fresh numbers from a seed, computed answers, and what to read after a failure."""

from __future__ import annotations

import re

import pytest

from cutaway.errors import InputError
from cutaway.lab import course
from cutaway.lab.content import markup, skip
from cutaway.lab.labs import quiz

LEVELS = {level["id"]: level for level in course.course()["levels"]}
SEEDS = (0, 1, 7, 12345, 2**32 - 1)
EACH = [(level, name) for level in LEVELS for name in quiz.generators(level)]


def typed(value: float | list[int]) -> str:
    return str(tuple(value)) if isinstance(value, list) else f"{value:.6f}"


def right_answers(level: str, seed: int) -> dict[str, str]:
    return {name: typed(quiz.fresh(level, name, seed).answer) for name in quiz.generators(level)}


@pytest.mark.parametrize("level", LEVELS)
def test_five_questions_with_fresh_numbers(level: str) -> None:
    one, again, other = (course.skip_test(level, seed) for seed in (1, 1, 2))
    assert len(one) == LEVELS[level]["skip_test"]["questions"] == 5
    assert one == again, "the seed alone decides"
    assert all(a["prompt_html"] != b["prompt_html"] for a, b in zip(one, other, strict=True))
    assert all(set(question) == {"id", "kind", "prompt_html", "options"} for question in one)
    assert not any("«" in question["prompt_html"] for question in one)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_right_clears_and_one_wrong_names_its_section(level: str, seed: int) -> None:
    answers = right_answers(level, seed)
    outcome = course.check_skip(level, seed, answers)
    assert outcome["cleared"], [result for result in outcome["results"] if not result["right"]]
    assert outcome["read"] == []
    sections = [section["id"] for section in LEVELS[level]["sections"]]
    for name in answers:
        outcome = course.check_skip(level, seed, answers | {name: "98765"})
        assert not outcome["cleared"]
        assert [result["id"] for result in outcome["results"] if not result["right"]] == [name]
        assert len(outcome["read"]) == 1
        assert outcome["read"][0] in sections


@pytest.mark.parametrize(("level", "name"), EACH)
def test_each_known_mistake_gets_its_own_reason(level: str, name: str) -> None:
    texts = skip.read_skip(course.CONTENT / "en" / "skip" / f"{level}.toml")
    told = set()
    for seed in range(25):
        fresh = quiz.fresh(level, name, seed)
        question = skip.fresh_questions(level, texts, seed)[name]
        assert question.judge(typed(fresh.answer)).right
        for mistake, value in fresh.wrong.items():
            verdict = question.judge(typed(value))
            assert not verdict.right, (seed, mistake)
            if verdict.reason == markup.line(skip.fill(texts[name]["wrong"][mistake], fresh.values, name)):
                told.add(mistake)
    assert told == set(texts[name]["wrong"]), "every reason is given for some numbers"


@pytest.mark.parametrize(("level", "name"), EACH)
def test_a_rounded_answer_counts_where_it_is_asked_for(level: str, name: str) -> None:
    prompt = next(question["prompt_html"] for question in course.skip_test(level, 3) if question["id"] == name)
    answer = quiz.fresh(level, name, 3).answer
    asked = re.search(r"(\d) decimals?\)", prompt)
    if asked:
        rounded = course.check_skip(level, 3, {name: f"{answer:.{asked.group(1)}f}"})
        assert next(result for result in rounded["results"] if result["id"] == name)["right"]
    elif not isinstance(answer, list):
        assert round(answer, 4) == pytest.approx(answer, abs=1e-9), "an exact answer has few decimals"


@pytest.mark.parametrize("level", LEVELS)
def test_a_thousand_seeds_make_whole_tests(level: str) -> None:
    for seed in range(0, 1000, 25):
        assert course.check_skip(level, seed, right_answers(level, seed))["cleared"], seed


def test_nothing_answered_loses_nothing_and_names_all_sections() -> None:
    outcome = course.check_skip("parts", 5, {})
    assert not outcome["cleared"]
    assert outcome["read"] == ["order", "ffn", "stable", "block"]
    assert all(result["reason_html"] for result in outcome["results"])


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "7", True, None])
def test_a_seed_outside_its_range_is_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        course.skip_test("parts", seed)


def test_an_answer_to_another_question_is_refused() -> None:
    with pytest.raises(InputError, match="nonsense"):
        course.check_skip("parts", 0, {"nonsense": "1"})
