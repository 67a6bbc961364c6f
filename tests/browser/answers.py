"""Answering: right and wrong answers to the course's questions, from its own texts, and programs in its editors."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from cutaway.lab import course
from cutaway.lab.content.questions import ChoiceQuestion, NumberQuestion, OpenQuestion, ShapeQuestion

LEVELS = {level["id"]: level for level in course.course()["levels"]}
QUESTIONS = course._texts("en").questions


def blocks(level: dict) -> list[dict]:
    """All blocks of a level in reading order, folds opened."""
    found: list[dict] = []

    def walk(some: list[dict]) -> None:
        for block in some:
            found.append(block)
            walk(block.get("blocks", []))

    for section in level["sections"]:
        walk(section["blocks"])
    return found


def right(question_id: str) -> str:
    """An answer that is right, as a reader would type it."""
    question = QUESTIONS[question_id]
    match question:
        case NumberQuestion() | ChoiceQuestion():
            return f"{question.answer:.10g}" if isinstance(question, NumberQuestion) else question.answer
        case ShapeQuestion():
            return f"({', '.join(map(str, question.answer))})"
        case OpenQuestion():
            return question.accept[0]


def wrong(question_id: str) -> list[str]:
    """Every wrong answer that has a reason of its own."""
    question = QUESTIONS[question_id]
    match question:
        case ChoiceQuestion():
            return [option.id for option in question.options if option.id != question.answer]
        case NumberQuestion():
            return [f"{mistake.value:.10g}" for mistake in question.wrong]
        case ShapeQuestion():
            return [", ".join(map(str, mistake.value)) for mistake in question.wrong]
        case OpenQuestion():
            return [mistake.value for mistake in question.wrong]


def answer(page: Page, question_id: str, text: str, is_right: bool) -> None:
    """Answers on the page and waits for the verdict."""
    form = page.locator(f"[data-question='{question_id}']")
    if isinstance(QUESTIONS[question_id], ChoiceQuestion):
        form.locator(f"input[value='{text}']").check()
    else:
        form.locator("textarea, input.field").fill(text)
    form.get_by_role("button", name="Check").click()
    expect(form.locator(".said b")).to_have_text("Right" if is_right else "Not yet", timeout=20_000)
    expect(form.locator(".said p > span").first).not_to_be_empty()


def mark(page: Page, ids: list[str]) -> None:
    """Writes ids into the browser's kept progress as answered, and loads the page again."""
    page.evaluate(
        """ids => {
            const kept = JSON.parse(localStorage.getItem('cutaway.progress')
              ?? '{"version":1,"right":{},"tries":{},"skipped":{},"code":{}}');
            for (const id of ids) { kept.right[id] = 'earned'; kept.tries[id] = 1; }
            localStorage.setItem('cutaway.progress', JSON.stringify(kept));
        }""",
        ids,
    )
    page.reload()
    page.locator("main h1").first.wait_for()


PASTE = """(node, text) => {
    const data = new DataTransfer();
    data.setData('text/plain', text);
    node.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
}"""


def exercise(page: Page, name: str) -> Locator:
    page.evaluate("document.querySelectorAll('main details').forEach((fold) => (fold.open = true))")
    box = page.locator(f"[data-exercise='{name}']")
    box.locator(".cm-content").wait_for()
    return box


def write(page: Page, box: Locator, code: str) -> None:
    box.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    box.locator(".cm-content").evaluate(PASTE, code)


def run(box: Locator) -> Locator:
    box.get_by_role("button", name="Run the checks").click()
    verdict = box.locator(".verdict")
    expect(verdict).to_be_visible(timeout=60_000)
    return verdict
