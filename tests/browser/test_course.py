"""The course around the labs: questions, locks in their order, reading mode, skip tests, stars, progress kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from cutaway.lab import course
from cutaway.lab.content import skip
from cutaway.lab.exercises import load
from tests.browser.answers import LEVELS, QUESTIONS, answer, blocks, exercise, mark, right, run, write, wrong
from tests.browser.conftest import Open


@pytest.mark.slow
@pytest.mark.parametrize("level_id", LEVELS)
def test_every_question_wrong_and_right(open_page: Open, level_id: str) -> None:
    asked = [block["id"] for block in blocks(LEVELS[level_id]) if block["type"] == "question"]
    page = open_page(level_id, reading=True)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
    for question in asked:
        for text in wrong(question):
            answer(page, question, text, is_right=False)
        answer(page, question, right(question), is_right=True)
    kept = json.loads(page.evaluate("localStorage.getItem('cutaway.progress')"))
    scored = [question for question in asked if QUESTIONS[question].kind != "open"]
    assert kept["right"] == {question: "read" for question in scored}
    assert page.locator("main .stars").first.get_attribute("aria-label", timeout=1000).startswith("0 of")


@pytest.mark.slow
@pytest.mark.parametrize("level_id", LEVELS)
def test_locks_open_in_their_order_and_none_early(open_page: Open, level_id: str) -> None:
    locks = [block for block in blocks(LEVELS[level_id]) if block["type"] == "lock"]
    page = open_page(level_id)
    done: set[str] = set()
    for lock in locks:
        if set(lock["after"]) <= done:
            continue
        shown = page.locator("[data-lock]")
        expect(shown).to_have_count(1)
        expect(shown).to_have_attribute("data-lock", lock["id"])
        needed = [task for task in lock["after"] if task not in done]
        for task in needed[:-1]:
            _solve(page, task)
            expect(shown).to_have_attribute("data-lock", lock["id"])
        _solve(page, needed[-1])
        done.update(needed)
    expect(page.locator("[data-lock]")).to_have_count(0)


def _solve(page: Page, task: str) -> None:
    if task in QUESTIONS:
        answer(page, task, right(task), is_right=True)
        return
    box = exercise(page, task)
    write(page, box, load(task).solution)
    expect(run(box)).to_contain_text("All checks passed")


def test_the_first_lock_hides_all_that_follows(open_page: Open) -> None:
    page = open_page("parts")
    expect(page.locator("[data-lock]")).to_have_attribute("data-lock", "16-1")
    expect(page.locator("[data-question='16.2']")).to_have_count(0)
    answer(page, "16.1", wrong("16.1")[0], is_right=False)
    expect(page.locator("[data-question='16.2']")).to_have_count(0)
    answer(page, "16.1", right("16.1"), is_right=True)
    expect(page.locator("[data-question='16.2']")).to_have_count(1)
    page.reload()
    expect(page.locator("[data-question='16.2']")).to_have_count(1)
    expect(page.locator("[data-question='16.1'] .badge")).to_be_visible()


def test_an_unreadable_answer_says_what_would_be_read(open_page: Open) -> None:
    page = open_page("parts", reading=True)
    form = page.locator("[data-question='16.2']")
    form.locator("input.field").fill("about one")
    form.get_by_role("button", name="Check").click()
    expect(form.locator(".trouble")).not_to_be_empty()
    assert (  # noqa: E501
        "16.2" not in json.loads(page.evaluate("localStorage.getItem('cutaway.progress') ?? '{\"right\":{}}'"))["right"]
    )


def test_stars_and_the_recap_come_with_the_whole_chapter(open_page: Open) -> None:
    page = open_page("modern")
    tasks = [block["id"] for block in blocks(LEVELS["modern"]) if block["type"] in ("question", "exercise")]
    expect(page.locator(".recap .closed")).to_be_visible()
    mark(page, [task for task in tasks if QUESTIONS.get(task) is None or QUESTIONS[task].kind != "open"])
    expect(page.locator("main .stars").first).to_have_attribute("aria-label", "3 of 3 stars")
    expect(page.locator(".recap .columns")).to_be_visible()


def test_rms_norm_stays_hidden_until_its_questions_are_answered(open_page: Open) -> None:
    page = open_page("modern")
    mark(page, ["19.1", "19.2", "19.3"])
    expect(page.locator("[data-number=rms]")).to_have_text("?")
    expect(page.locator("[data-lab=norms]")).to_contain_text("-0.9045")
    expect(page.locator("[data-lab=norms]")).not_to_contain_text("1.6667")
    answer(page, "19.4", right("19.4"), is_right=True)
    expect(page.locator("[data-number=rms]")).to_have_text("3")
    expect(page.locator("[data-lab=norms] .seen")).to_contain_text("1.6667")


@pytest.mark.parametrize(
    "level", [each if each == "modern" else pytest.param(each, marks=pytest.mark.slow) for each in LEVELS]
)
def test_a_skip_test_fails_without_loss_and_then_clears(open_page: Open, level: str) -> None:
    page = open_page(level)
    locked = page.locator("[data-lock]").count()
    page.get_by_text("Skip this chapter").click()
    page.get_by_role("button", name="Start the test").click()
    fields = page.locator("details form .field")
    expect(fields).to_have_count(5)
    page.get_by_role("button", name="Check all five").click()
    expect(page.locator("details form ul a").first).to_be_visible()
    expect(page.locator("[data-lock]")).to_have_count(locked)
    assert page.evaluate("localStorage.getItem('cutaway.progress') ?? ''").count('"skipped":{}') in (0, 1)
    with page.expect_request(f"**/api/skip/{level}") as asked:
        page.get_by_role("button", name="New numbers").click()
    seed = asked.value.post_data_json["seed"]
    questions = skip.fresh_questions(level, course._skip_texts(level, "en"), seed)
    for field, question in zip(fields.all(), questions.values(), strict=True):
        value = question.answer
        field.fill(", ".join(map(str, value)) if isinstance(value, list) else f"{value:.10g}")
    page.get_by_role("button", name="Check all five").click()
    expect(page.locator("details form .done")).to_be_visible()
    expect(page.locator("[data-lock]")).to_have_count(0)
    expect(page.locator(".recap .columns")).to_be_visible()
    page.reload()
    expect(page.locator("main .state")).to_contain_text("Cleared")
    assert page.locator("main .stars").first.get_attribute("aria-label").startswith("0 of")


def test_progress_is_saved_erased_and_loaded(open_page: Open, tmp_path: Path) -> None:
    page = open_page("progress")
    mark(page, ["16.1"])
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
    file = tmp_path / "progress.json"
    saved.value.save_as(file)
    assert json.loads(file.read_text())["right"] == {"16.1": "earned"}
    page.get_by_role("button", name="Reset progress").click()
    page.get_by_role("button", name="Erase").click()
    assert json.loads(page.evaluate("localStorage.getItem('cutaway.progress')"))["right"] == {}
    bad = tmp_path / "bad.json"
    bad.write_text('{"version": 1, "right": {"x": "stolen"}}')
    for chosen, left in ((bad, {}), (file, {"16.1": "earned"})):
        page.locator("input[type=file]").set_input_files(chosen)
        expect(page.locator(".said")).not_to_be_empty()
        page.wait_for_timeout(100)
        assert json.loads(page.evaluate("localStorage.getItem('cutaway.progress')"))["right"] == left


def test_shortcuts_glossary_and_single_keys(open_page: Open) -> None:
    page = open_page("parts")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("r")
    expect(page.locator("[data-lock]")).to_have_count(0)
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    page.keyboard.press("g")
    expect(page).to_have_url(re.compile("#/glossary$"))
    page.get_by_label("Find a word").fill("residual")
    assert page.locator("dl dt").count() >= 1
    expect(page.get_by_label("Find a word")).to_be_focused()


def test_an_address_carries_a_lab_inside_a_chapter(open_page: Open) -> None:
    place = next(s["id"] for s in LEVELS["modern"]["sections"] if any(b.get("lab") == "rope" for b in s["blocks"]))
    page = open_page(f"modern/{place}?lab=rope&m=12&n=10", reading=True)
    expect(page.locator("[data-lab=rope] [data-number=score]")).to_have_text("0.8415")


def test_a_reload_loses_nothing(open_page: Open) -> None:
    page = open_page("parts")
    answer(page, "16.1", right("16.1"), is_right=True)
    page.locator("[data-lab=order]").get_by_role("switch", name="Causal mask").click()
    page.wait_for_url(re.compile("causal=true"))
    page.locator("[data-lab=pe]").get_by_role("slider", name="Position to read").press("ArrowRight")
    page.wait_for_url(re.compile("row=4"))
    unfinished = page.locator("[data-question='16.2'] input.field")
    unfinished.fill("0.25")
    page.locator("main h2").nth(2).scroll_into_view_if_needed()
    before = page.locator("main h2").nth(2).bounding_box()
    page.reload()
    expect(page.locator("[data-lab=order]").get_by_role("switch", name="Causal mask")).to_be_checked()
    expect(page.locator("[data-lab=pe] [data-number=vector]")).to_contain_text("[-0.76, -0.65")
    expect(unfinished).to_have_value("0.25")
    page.wait_for_load_state("networkidle")
    after = page.locator("main h2").nth(2).bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) < 120


def test_a_link_followed_within_the_chapter_sets_the_lab_and_leaves_others_alone(open_page: Open) -> None:
    page = open_page("modern", reading=True)
    page.locator("[data-lab=swiglu] .seen").wait_for()
    page.locator("[data-lab=swiglu]").get_by_role("slider", name="Gate g").press("ArrowRight")
    expect(page.locator("[data-lab=swiglu] [data-number=silu]")).not_to_have_text("-0.2689")
    for m, score in ((2, "0.8415"), (1, "0.4794")):
        page.evaluate(f"location.hash = '#/modern/rope?lab=rope&m={m}'")
        expect(page.locator("[data-lab=rope] [data-number=score]")).to_have_text(score)
    page.evaluate("location.hash = '#/modern/together'")
    expect(page.locator("[data-lab=rope] [data-number=score]")).to_have_text("0.4794")
    expect(page.locator("[data-lab=swiglu] [data-number=silu]")).not_to_have_text("-0.2689")


def test_a_lab_that_is_drawn_late_does_not_move_the_button_under_the_pointer(open_page: Open) -> None:
    page = open_page("modern")
    held: list[Route] = []
    asks = "**/api/labs/residual-path"
    page.route(asks, lambda route: held.append(route))  # noqa: PLW0108 - a bare method cannot be marked
    with page.expect_request(asks):
        answer(page, "19.1", right("19.1"), is_right=True)
    form = page.locator("[data-question='19.2']")
    form.locator("input.field").fill(right("19.2"))
    check = form.get_by_role("button", name="Check")
    check.scroll_into_view_if_needed()
    page.wait_for_timeout(700)  # until the part that has opened stands: the pointer moves once
    check.hover()
    page.mouse.down()
    for request in held:
        request.continue_()
    page.locator("[data-lab=residual-path] svg").first.wait_for()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # it is shown
    page.mouse.up()
    expect(form.locator(".said b")).to_have_text("Right", timeout=20_000)


def test_the_page_stays_where_it_was_scrolled_to_after_a_press_in_the_contents(open_page: Open) -> None:
    page = open_page("modern", reading=True)
    page.locator("[data-lab=swiglu] .seen").wait_for()
    page.get_by_role("navigation", name="Contents").locator("a, button").last.focus()
    page.evaluate("scrollTo({top: 400, behavior: 'instant'})")
    for top in (430, 460):  # by less than what lies above the link, which stands still
        page.evaluate(f"scrollTo({{top: {top}, behavior: 'instant'}})")
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.evaluate("document.querySelector('main').style.paddingBottom = `${scrollY}px`")  # the page grows below
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("scrollY") == top


def test_the_contents_of_a_phone_close_by_a_tap_beside_them_and_by_their_button(open_page: Open) -> None:
    page = open_page("parts", width=390, has_touch=True)
    drawer = page.get_by_role("navigation", name="Contents")
    for leave in (lambda: page.touchscreen.tap(380, 700), lambda: drawer.get_by_role("button", name="Close").tap()):
        page.get_by_role("button", name="Contents").tap()
        expect(drawer).to_be_visible()
        leave()
        expect(drawer).to_be_hidden()
