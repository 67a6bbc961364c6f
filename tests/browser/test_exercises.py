"""Exercises in the editor: its keys, right and wrong answers, hostile code, the stop button."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from cutaway.lab.exercises import IDS, load
from tests.browser.answers import LEVELS, blocks, exercise, run, write
from tests.browser.conftest import Open

PLACES = {b["id"]: level for level in LEVELS for b in blocks(LEVELS[level]) if b["type"] == "exercise"}
HOSTILE = {
    "an endless loop": "while True:\n    pass\n",
    "4 GiB": "import numpy as np\nnp.ones(2**29)\n",
    "a file outside": "open('../outside.txt', 'w').write('x')\n",
    "the network": "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)\n",
}
SAID = {
    "an endless loop": "more than 5 seconds", "4 GiB": "more memory than it may have",
    "a file outside": "may not write", "the network": "no network",
}  # fmt: skip


def test_every_exercise_stands_in_the_course() -> None:
    assert set(PLACES) == set(IDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", IDS)
def test_right_and_known_wrong_answers(open_page: Open, name: str) -> None:
    known = load(name)
    page = open_page(PLACES[name], reading=True)
    box = exercise(page, name)
    for mistake in known.mistakes:
        write(page, box, mistake.code)
        expect(run(box)).to_contain_text("Not yet")
        expect(box.locator(".said ul")).to_contain_text(mistake.message)
    write(page, box, known.solution)
    expect(run(box)).to_contain_text("All checks passed")
    expect(box.locator(".badge")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_code_is_stopped_with_a_message(open_page: Open, kind: str) -> None:
    page = open_page(PLACES["layer-norm"], reading=True)
    box = exercise(page, "layer-norm")
    write(page, box, HOSTILE[kind])
    expect(run(box)).to_contain_text("Not yet")
    expect(box.locator(".said ul")).to_contain_text(SAID[kind])


def test_the_editors_keys(open_page: Open) -> None:
    page = open_page(PLACES["rotate"], reading=True)
    box = exercise(page, "rotate")
    write(page, box, "def rotate(v, pos, theta):")
    page.keyboard.press("Control+End")
    page.keyboard.press("Enter")
    page.keyboard.type("a = 1")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("b")
    assert box.locator(".cm-line").all_inner_texts() == ["def rotate(v, pos, theta):", "    a = 1", "        b"]
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(box.get_by_role("button", name="Run the checks")).to_be_focused()
    box.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    expect(box.locator(".verdict")).to_contain_text("Not yet", timeout=60_000)


def test_hints_solution_and_stop(open_page: Open) -> None:
    page = open_page(PLACES["rms-norm"], reading=True)
    box = exercise(page, "rms-norm")
    box.get_by_role("button", name="hint").click()
    expect(box.locator(".hint")).to_have_count(1)
    box.get_by_role("button", name="Show a solution").click()
    expect(box.locator(".trouble")).to_contain_text("3 tries")
    write(page, box, "while True:\n    pass\n")
    box.get_by_role("button", name="Run the checks").click()
    box.get_by_role("button", name="Stop").click()
    expect(box.locator(".verdict")).to_contain_text("Stopped", timeout=20_000)
    page.reload()
    expect(exercise(page, "rms-norm").locator(".cm-content")).to_contain_text("while True")


def test_a_solution_is_shown_after_three_honest_tries(open_page: Open) -> None:
    page = open_page(PLACES["rotate"], reading=True)
    box = exercise(page, "rotate")
    show = box.get_by_role("button", name="Show a solution")
    for _ in range(3):  # the starter alone is no try, nor the same answer once more
        run(box)
    show.click()
    expect(box.locator(".trouble")).to_contain_text("3 tries")
    for mistake in load("rotate").mistakes[:3]:
        write(page, box, mistake.code)
        expect(run(box)).to_contain_text("Not yet")
    show.click()
    expect(box.locator(".hint pre")).to_contain_text("np.cos(angle)")
