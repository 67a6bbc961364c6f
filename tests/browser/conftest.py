"""A real browser on the real server. Without a Chromium these tests are skipped, loudly; in CI they must run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("CUTAWAY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
Open = Callable[..., Page]


def pytest_report_header() -> str | None:
    """One line at the top of the run that nobody can miss."""
    return (  # noqa: E501
        None if CHROMIUM else "!!! NO CHROMIUM FOUND: the browser tests are SKIPPED. Install chromium to run them. !!!"
    )


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


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Open]:
    """Opens `#/path` in a fresh browser profile. Any error in the console, blocked resource or outside host fails."""
    troubles: list[str] = []
    contexts = []

    def open_(path: str = "", width: int = 1280, reading: bool = False, theme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        context.add_init_script(
            "localStorage.getItem('cutaway.settings') ?? localStorage.setItem('cutaway.settings', "
            f"JSON.stringify({{theme: '{theme}', reading: {str(reading).lower()}, keys: true}}))"
        )
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda m: troubles.append(m.text) if m.type == "error" and "422" not in m.text else None)  # noqa: E501
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "request", lambda r: troubles.append(r.url) if "127.0.0.1" not in r.url and r.url[:4] == "http" else None
        )
        page.goto(address)
        page.goto(f"{address.split('?')[0]}#/{path}")
        page.locator("main h1").first.wait_for()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not troubles, troubles


@pytest.fixture
def lab(open_page: Open) -> Callable[[str], Page]:
    """A lab by itself, drawn."""

    def open_lab(path: str) -> Page:
        page = open_page(f"labs/{path}")
        page.locator(".lab .seen").wait_for()
        page.locator(".lab .body > *").first.wait_for()
        return page

    return open_lab


def number(page: Page, name: str) -> str:
    """A printed number, as it stands on the screen."""
    return page.locator(f"[data-number='{name}']").first.inner_text()
