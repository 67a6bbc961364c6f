"""Every view for everyone: axe without violations, nothing overflowing, a first load that is small."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from cutaway.lab import course, labs
from tests.browser.conftest import ROOT, Go, Open, Reader

AXE = (ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js").read_text
LEVELS = [level["id"] for level in course.course()["levels"]]
VIEWS = ["", "labs", "glossary", "progress", "nowhere", *LEVELS, *(f"labs/{lab}" for lab in labs.IDS)]
MAIN_VIEWS = ("parts", "labs/block", "labs/rope", "")
FIRST_LOAD = 300_000  # bytes over the wire


def violations(page: Page) -> list[str]:
    """What axe finds, one line a broken rule and place."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
    return [f"{v['id']}: {node['target']} {node['failureSummary'][:300]}" for v in found for node in v["nodes"]]


def settle(page: Page) -> None:
    """Waits for the labs and formulas that a view loads when it needs them, and unfolds everything."""
    page.wait_for_load_state("networkidle")
    page.evaluate("document.querySelectorAll('main details').forEach((fold) => (fold.open = true))")
    expect(page.locator(".lab:not(:has(.seen))")).to_have_count(0, timeout=30_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(200)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(readers: Callable[[str], Reader], view: str, theme: str) -> None:
    reader = readers(theme)
    page = reader.go(view)
    settle(page)
    assert violations(page) == []
    assert not reader.troubles


@pytest.mark.parametrize("view", MAIN_VIEWS)
def test_axe_finds_nothing_in_the_main_views(open_page: Open, view: str) -> None:
    """As a reader meets them first: locked."""
    page = open_page(view)
    settle(page)
    assert violations(page) == []


def test_axe_finds_nothing_in_dialogs_and_verdicts(open_page: Open) -> None:
    page = open_page("parts", theme="dark")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    form = page.locator("[data-question='16.1']")
    for choice in ("different", "same"):
        form.locator(f"input[value='{choice}']").check()
        form.get_by_role("button", name="Check").click()
        form.locator(".said b").wait_for()
        assert violations(page) == []
    page.get_by_text("Skip this chapter").click()
    page.get_by_role("button", name="Start the test").click()
    page.get_by_role("button", name="Check all five").click()
    page.locator("details form ul a").first.wait_for()
    assert violations(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_overflows_from_360_px_to_4k(tab: Go, view: str) -> None:
    """640 px is 1280 px at a zoom of 200%."""
    page = tab(view)
    settle(page)
    for width in (360, 390, 640, 1280, 2560, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(120)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{over} px too wide at {width} px"


@pytest.mark.parametrize("view", ["", "parts"])
def test_first_load_is_small(open_page: Open, view: str) -> None:
    """Everything that a browser without a cache fetches before a reader scrolls, fonts and the course included."""
    page = open_page(view)
    page.reload()
    page.locator("main h1").wait_for()
    page.wait_for_load_state("networkidle")
    files = page.evaluate("performance.getEntriesByType('resource').map((e) => [e.name, e.encodedBodySize])")
    total = sum(size for _, size in files)
    print(f"first load of '{view}': {total / 1000:.0f} kB in {len(files)} files")
    assert total < FIRST_LOAD, files
    assert view or not any("katex" in name.lower() for name, _ in files)
    assert not any("editor" in name for name, _ in files), "the first exercise of this chapter is behind a lock"


def test_a_chosen_theme_stays(open_page: Open) -> None:
    page = open_page("")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark colours").click()
    page.reload()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper


def test_the_keyboard_reaches_everything_and_shows_where_it_is(open_page: Open) -> None:
    page = open_page("labs/rope")
    page.locator(".lab input").first.wait_for()
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "(() => { const n = document.activeElement; const s = getComputedStyle(n.closest('label') ?? n);"
            "return [n.textContent.trim() || n.id, s.outlineStyle + getComputedStyle(n).outlineStyle]; })()"
        )
        seen.add(name)
        assert "solid" in outline or page.evaluate("document.activeElement === document.body"), name
    assert {"Reset", "both +1"} <= seen
