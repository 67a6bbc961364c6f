"""Pictures of every view, to be looked at: `python -m tests.browser.shots --out DIR [VIEW ...]`.

Each view at each width and theme; a long page is cut into pieces of 1,500 px, on a narrow window side by side.
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.answers import LEVELS, blocks, exercise, mark, right, run, write, wrong
from tests.browser.conftest import CHROMIUM, FLAGS, ROOT, Reader
from tests.browser.test_views import VIEWS, settle

PIECE = 1500
HEADER = 100  # it stays at the top while the page moves under it
WIDTHS = (390, 1280, 2560)


@contextmanager
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "cutaway", "lab", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield re.search(r"http://\S+", process.stdout.readline())[0]
        finally:
            process.terminate()


def locked(page: Page) -> None:
    """As a reader meets the chapter first, with the test that skips it answered with nothing."""
    page.get_by_role("button", name="Start the test").click()
    page.get_by_role("button", name="Check all five").click()
    page.locator("details form ul a").first.wait_for()


def answered(page: Page) -> None:
    """Each question answered: every second one wrongly."""
    page.evaluate("document.querySelectorAll('main details').forEach((fold) => (fold.open = true))")
    for i, form in enumerate(page.locator("[data-question]").all()):
        name = form.get_attribute("data-question") or ""
        said = wrong(name)[0] if i % 2 and wrong(name) else right(name)
        if form.locator("input[type=radio]").count():
            form.locator(f"input[value='{said}']").check()
        else:
            form.locator("textarea, input.field").fill(said)
        form.get_by_role("button", name="Check").click()
        form.locator(".said b, .said .trouble").first.wait_for()


def tried(page: Page) -> None:
    """An exercise answered with a known mistake."""
    box = exercise(page, "layer-norm")
    write(page, box, "def layer_norm(x, eps=1e-5):\n    return (x - x.mean()) / x.std()\n")
    run(box)


def cleared(page: Page) -> None:
    mark(page, [block["id"] for block in blocks(LEVELS["parts"]) if block["type"] in ("question", "exercise")])


def shortcuts(page: Page) -> None:
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()


def contents(page: Page) -> None:
    page.keyboard.press("c")
    page.wait_for_timeout(300)


STATES: dict[str, tuple[str, bool, Callable[[Page], None]]] = {
    "locked": ("parts", False, locked),
    "answered": ("modern", True, answered),
    "tried": ("parts", True, tried),
    "cleared": ("parts", False, cleared),
    "shortcuts": ("parts", False, shortcuts),
    "contents": ("parts", False, contents),
}


def pieces(page: Page, width: int, whole: bool = True) -> list[bytes]:
    """The page from top to bottom, as many pieces to a picture as fit into 1,600 px."""
    if not whole:
        return [page.screenshot()]
    page.set_viewport_size({"width": width, "height": PIECE})
    tall = page.evaluate("document.documentElement.scrollHeight")
    parts = []
    for top in range(0, max(1, tall - HEADER), PIECE - HEADER):
        page.evaluate("(top) => scrollTo(0, top)", top)
        page.wait_for_timeout(60)
        parts.append(page.screenshot())
    beside = max(1, 1600 // (width + 10))
    return [joined(page, parts[start : start + beside]) for start in range(0, len(parts), beside)]


def joined(page: Page, parts: list[bytes]) -> bytes:
    if len(parts) == 1:
        return parts[0]
    sheet = page.context.browser.new_page(viewport={"width": 1600, "height": 100})
    images = "".join(f"<img src='data:image/png;base64,{base64.b64encode(part).decode()}'>" for part in parts)
    sheet.set_content(f"<body style='margin:0;display:flex;gap:10px;align-items:start;background:#c0f'>{images}")
    picture = sheet.screenshot(full_page=True)
    sheet.close()
    return picture


def shoot(browser: Browser, address: str, out: Path, view: str, width: int, theme: str) -> int:
    where, reading, act = STATES.get(view, (view, True, settle))
    reader = Reader(browser, address, theme=theme, reading=reading, width=width, has_touch=width < 600)
    page = reader.go(where)
    settle(page)
    act(page)
    expect(page.locator(".lab:not(:has(.seen))")).to_have_count(0, timeout=30_000)
    page.wait_for_timeout(300)
    sheets = pieces(page, width, whole=view not in ("shortcuts", "contents"))
    for i, sheet in enumerate(sheets):
        (out / f"{(view or 'home').replace('/', '-')}.{width}.{theme}.{i:02}.png").write_bytes(sheet)
    reader.context.close()
    for trouble in reader.troubles:
        print(f"{view} {width} {theme}: {trouble}")
    return len(sheets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*", default=[*VIEWS, *STATES])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--themes", nargs="+", default=["light", "dark"])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for view in asked.views:
            for width in asked.widths:
                for theme in asked.themes:
                    print(
                        view or "home", width, theme, shoot(browser, address, asked.out, view, width, theme), flush=True
                    )
        browser.close()


if __name__ == "__main__":
    main()
