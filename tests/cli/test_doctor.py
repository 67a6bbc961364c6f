"""`cutaway doctor` explains broken set-ups and works in them."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.cli import doctor

ROOT = Path(__file__).resolve().parents[2]


def told(cutaway):
    done = cutaway("doctor", "--json")
    return done.status, {each["what"]: each for each in json.loads(done.out)["findings"]}


def test_a_sound_one(cutaway):
    done = cutaway("doctor")
    assert done.status == 0 and done.lines[-1] == "all well"
    assert any("model smollm2 is here" in line for line in done.lines)


def test_a_cache_that_cannot_be_written(cutaway, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "file" / "cache"))
    status, found = told(cutaway)
    bad = [each for each in found.values() if each["state"] == "fault"]
    assert status == 1 and "set CUTAWAY_CACHE to a folder that can be written" in [each["advice"] for each in bad]


def test_a_model_that_is_not_whole(cutaway, monkeypatch, tmp_path):
    from cutaway.checkpoints.pull import KNOWN

    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path))
    path = KNOWN["smollm2"].path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    status, found = told(cutaway)
    assert status == 1 and "cutaway pull smollm2" in found["model smollm2 is not whole"]["advice"]


def test_a_missing_an_old_and_a_broken_package(monkeypatch):
    assert doctor._package("nosuch-package", "2") == (
        "fault", "nosuch-package is missing", "pip install 'nosuch-package>=2'"
    )  # fmt: skip
    version = importlib.metadata.version("numpy")
    assert doctor._package("numpy", "999").what == f"numpy {version} is too old"
    monkeypatch.setitem(sys.modules, "tomli_w", None)  # as one that fails when it is imported
    assert "does not load" in doctor._package("tomli-w", "").what


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_it_runs_on_a_python_that_has_nothing(words):
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
         f"sys.argv = ['cutaway', 'doctor', *{words!r}]\nfrom cutaway.cli import main\nmain()"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr == ""
    assert "pip install" in done.stdout and "torch is missing" in done.stdout
