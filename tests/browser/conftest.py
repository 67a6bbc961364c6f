"""A real browser on the real server. Without a Chromium these tests are skipped, loudly; in CI they must run.

One browser and one server serve all tests. `open_page` gives a reader without a past; `tab` a page that the tests of a
module share, since loading the course anew costs more than most tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("CUTAWAY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
FOLLOW = """path => new Promise((resolve) => {
    if (location.hash === `#/${path}`) return resolve();
    addEventListener('hashchange', () => setTimeout(resolve), {once: true});
    location.hash = `#/${path}`;
})"""
Open = Callable[..., Page]
Go = Callable[[str], Page]


def pytest_report_header() -> str | None:
    """One line at the top of the run that nobody can miss."""
    if CHROMIUM:
        return None
    return "!!! NO CHROMIUM FOUND: the browser tests are SKIPPED. Install chromium to run them. !!!"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests of this folder where there is no browser; CI fails instead (in the fixture)."""
    if CHROMIUM or os.environ.get("CI"):
        return
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason="NO CHROMIUM FOUND: install chromium to run the browser tests"))


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The launch address of a server of this run, with the page built if it is missing or old."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "page.lock"):  # parallel workers build it once
        subprocess.run([sys.executable, ROOT / "web" / "build.py"], check=True, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "cutaway", "lab", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, f"the server did not start: {said}"
        yield found.group(0)
        server.terminate()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "CI needs a Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Reader:
    """One browser profile with one page; `troubles` gathers console errors, blocked resources and outside hosts."""

    def __init__(self, browser: Browser, address: str, **how: Any) -> None:
        self.address, self.troubles = address, []
        theme, reading = how.pop("theme", "light"), how.pop("reading", False)
        how = {"viewport": {"width": how.pop("width", 1280), "height": 900}, "reduced_motion": "reduce", **how}
        self.context: BrowserContext = browser.new_context(color_scheme=theme, **how)
        settings = json.dumps(json.dumps({"theme": theme, "reading": reading, "keys": True}))
        self.context.add_init_script(
            f"localStorage.getItem('cutaway.settings') ?? localStorage.setItem('cutaway.settings', {settings})"
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", self._asked)
        self.page.goto(address)

    def go(self, path: str) -> Page:
        """Follows `#/path` without loading the page anew, and begins there even if it is there already."""
        for place in ("nowhere", path):
            self.page.evaluate(FOLLOW, place)
        self.page.locator("main h1").first.wait_for()
        return self.page

    def _said(self, message: Any) -> None:
        if message.type == "error" and "422" not in message.text:
            self.troubles.append(message.text)

    def _asked(self, request: Any) -> None:
        if request.url.startswith("http") and "127.0.0.1" not in request.url:
            self.troubles.append(request.url)


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Open]:
    """Opens `#/path` in a fresh browser profile. Any error in the console, blocked resource or outside host fails."""
    readers: list[Reader] = []

    def open_(path: str = "", **how: Any) -> Page:
        reader = Reader(browser, address, **how)
        readers.append(reader)
        reader.page.goto(f"{address.split('?')[0]}#/{path}")
        reader.page.locator("main h1").first.wait_for()
        return reader.page

    yield open_
    for reader in readers:
        reader.context.close()
    assert not (troubles := [trouble for reader in readers for trouble in reader.troubles]), troubles


@pytest.fixture(scope="module")
def readers(browser: Browser, address: str) -> Iterator[Callable[[str], Reader]]:
    """A module's shared reader of each theme, in reading mode."""
    made: dict[str, Reader] = {}

    def reader(theme: str) -> Reader:
        if theme not in made:
            made[theme] = Reader(browser, address, theme=theme, reading=True)
        return made[theme]

    yield reader
    for each in made.values():
        each.context.close()


@pytest.fixture
def tab(readers: Callable[[str], Reader]) -> Iterator[Go]:
    """Goes to an address in the shared page. Any trouble on the way fails."""
    reader = readers("light")
    reader.page.set_viewport_size({"width": 1280, "height": 900})
    yield reader.go
    troubles, reader.troubles = reader.troubles, []
    assert not troubles, troubles


@pytest.fixture
def lab(tab: Go) -> Go:
    """A lab by itself, drawn."""

    def open_lab(path: str) -> Page:
        page = tab(f"labs/{path}")
        page.locator(f".lab[data-lab='{path.partition('?')[0]}'] .seen").wait_for(timeout=30_000)
        page.locator(".lab .body > *").first.wait_for()
        return page

    return open_lab


def number(page: Page, name: str) -> str:
    """A printed number, as it stands on the screen."""
    return page.locator(f"[data-number='{name}']").first.inner_text()
