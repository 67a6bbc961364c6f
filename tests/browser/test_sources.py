"""The page's own checks, run where node is: its types and its pure functions."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.browser.conftest import ROOT

WEB = ROOT / "web"
KINDS = {".svelte", ".ts", ".css", ".js"}


@pytest.mark.slow
@pytest.mark.parametrize("script", ["check", "test"])
def test_types_and_unit_tests(address: str, script: str) -> None:
    """`address` has built the page, so that its packages are here."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine")
    done = subprocess.run([npm, "run", script], cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_files_are_short_and_name_no_host() -> None:
    for file in [*(WEB / "src").rglob("*"), *(WEB / "public").rglob("*"), WEB / "index.html"]:
        if file.suffix in KINDS | {".html"}:
            text = file.read_text(encoding="utf-8")
            assert len(text.splitlines()) <= 400, file
            assert not re.search(r"https?://(?!www\.w3\.org/)", text), f"{file} names a host"


def test_the_lock_file_names_no_registry() -> None:
    text = (WEB / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text
