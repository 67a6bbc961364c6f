"""Every control of every lab by mouse and by keyboard: what the page then says is what the lab computes from its state.

The state is read from the address, so that this also shows that a link carries it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from cutaway.lab import labs
from tests.browser.conftest import Go

#: What a lab shows of itself, not of its state: the stage of the sampler that is looked at.
VIEWS = {"sampling": {"After this step"}}
Act = Callable[[Locator], None]


def state(page: Page, lab_id: str) -> dict[str, Any]:
    """The lab's state as the address carries it."""
    default = labs.default(lab_id)
    query = dict(parse_qsl(urlsplit(page.url.partition("#")[2]).query))
    return {key: text if isinstance(default[key], str) else _json(text) for key, text in query.items()}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def controls(page: Page) -> Iterator[tuple[str, Locator, Act, Act]]:
    """Each control's name, how a mouse works it, and how a keyboard does."""
    body = page.locator(".lab .body")
    for control in body.locator("input[type=range]").all():
        yield "slider", control, _click_on_track, _step
    for group in body.locator("fieldset", has=page.locator("input[type=radio]")).all():
        yield "choice", group, _click_another, _arrow_to_another
    for box in body.locator("input[type=checkbox]").all():
        yield "checkbox", box, lambda one: one.locator("xpath=..").click(), lambda one: one.press("Space")
    for field in body.locator("input[inputmode=decimal]").all():
        yield "number", field, lambda one: (one.click(), one.fill("1.5")), lambda one: one.press("ArrowUp")
    for dot in body.locator("[data-dot]").all():
        yield "dot", dot, _drag, lambda one: one.press("ArrowDown")
    for button in body.get_by_role("button", name="both +").all():
        yield "button", button, lambda one: one.click(), lambda one: one.press("Enter")


def _click_on_track(slider: Locator) -> None:
    """Where the thumb is not."""
    low, high, now = (float(slider.evaluate(f"node => node.{key}")) for key in ("min", "max", "value"))
    box = slider.bounding_box()
    assert box
    at = 0.25 if (now - low) > 0.5 * (high - low) else 0.75
    slider.click(position={"x": box["width"] * at, "y": box["height"] / 2})


def _step(slider: Locator) -> None:
    at_end = slider.evaluate("node => Number(node.value) >= Number(node.max)")
    slider.press("ArrowLeft" if at_end else "ArrowRight")


def _click_another(group: Locator) -> None:
    group.locator("label", has=group.page.locator("input:not(:checked):not(:disabled)")).first.click()


def _arrow_to_another(group: Locator) -> None:
    group.locator("input:checked").press("ArrowRight")


def _drag(dot: Locator) -> None:
    box, mouse = dot.locator("path").bounding_box(), dot.page.mouse
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 30, y + 45, steps=4)
    mouse.up()


def told(page: Page, lab_id: str) -> str:
    """What the server says of the address's state, asked anew."""
    body = {"state": state(page, lab_id)}
    address = f"{page.url.partition('#')[0]}api/labs/{lab_id}"
    return page.request.post(address, data=body, timeout=60_000).json()["result"]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("lab_id", labs.IDS)
def test_each_control_by_mouse_and_by_keyboard(lab: Go, lab_id: str) -> None:
    page = lab(lab_id)
    page.evaluate("document.querySelectorAll('.lab details').forEach((fold) => (fold.open = true))")
    tried = 0
    for kind, control, by_mouse, by_keyboard in controls(page):
        if not control.is_visible() or not control.is_enabled():
            continue
        if kind == "choice" and control.locator("legend").inner_text() in VIEWS.get(lab_id, ()):
            continue
        control.scroll_into_view_if_needed()
        for act in (by_mouse, by_keyboard):
            before = page.url
            act(control)
            page.wait_for_url(lambda url, before=before: url != before, timeout=20_000)
            expect(page.locator(".seen")).to_have_text(told(page, lab_id), timeout=30_000)
        tried += 1
        if lab_id == "small-gpt":  # else every further control would train the model of all that was set before
            page.get_by_role("button", name="Reset").click()
            page.wait_for_url(re.compile("small-gpt$"))
    expect(page.locator(".error")).to_have_count(0)
    assert tried >= (1 if lab_id == "mask" else 2)


@pytest.mark.parametrize("lab_id", ["order", "stack", "block", "rope"])
def test_a_link_keeps_the_state_through_a_reload(lab: Go, lab_id: str) -> None:
    page = lab(lab_id)
    for kind, control, _, by_keyboard in controls(page):
        if kind in ("slider", "checkbox") and control.is_visible():
            by_keyboard(control)
            break
    page.wait_for_url(re.compile(r"\?"))
    said = labs.run(lab_id, state(page, lab_id))["text"]
    page.reload()
    expect(page.locator(".seen")).to_have_text(said, timeout=30_000)


def test_only_the_newest_state_counts(lab: Go) -> None:
    """While a slow answer is on its way, further steps are not queued up: the last one is asked for, and shown."""
    page = lab("rope")
    asked: list[str] = []

    def slowly(route: Any) -> None:
        asked.append(route.request.post_data)
        page.wait_for_timeout(150)
        route.continue_()

    page.route("**/api/labs/rope", slowly)
    m = page.get_by_role("slider", name="Position m of q")
    m.focus()
    for _ in range(12):
        m.press("ArrowRight")
    expect(page.locator(".seen")).to_have_text(labs.run("rope", {"m": 12})["text"])
    page.unroute("**/api/labs/rope")
    assert json.loads(asked[-1])["state"]["m"] == 12
    assert len(asked) < 12
