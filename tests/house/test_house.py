"""The rules of the house that a machine can check."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutaway

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for folder in ("cutaway", "tests", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]


def test_files_are_short():
    assert [str(p) for p in FILES if len(p.read_text().splitlines()) > 400] == []


def test_parts_ask_nothing_softly():
    soft = re.compile(r"hasattr\(|getattr\([^)]*,[^)]*,")
    hits = [str(p) for p in (ROOT / "cutaway" / "parts").rglob("*.py") if soft.search(p.read_text())]
    assert hits == []


def test_nothing_is_left_open():
    words = re.compile("TO" + "DO|FIX" + "ME")
    assert [str(p) for p in FILES if words.search(p.read_text())] == []


@pytest.mark.parametrize("name", ["spec", "errors", "reference.models", "tokenizers.tokenizer", "lab.labs"])
def test_torch_is_not_reached(name):
    code = f"import sys, cutaway.{name}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("name", cutaway.__all__)
def test_public_names_are_documented_and_their_examples_run(name):
    thing = importlib.import_module("cutaway.spec") if name == "spec" else getattr(cutaway, name)
    assert thing.__doc__
    module = importlib.import_module(getattr(thing, "__module__", "cutaway.spec"))
    for test in doctest.DocTestFinder(recurse=False).find(thing, name, module=module):
        assert doctest.DocTestRunner().run(test).failed == 0


def test_every_command_of_the_readme_runs():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) >= 8
    for line in lines:
        if line.startswith(("make", "pip", "git")) or line == "cutaway lab":  # what CI itself runs, or what waits
            continue
        words = line.replace("cutaway", f"{sys.executable} -m cutaway", 1)
        done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=ROOT, input="", timeout=300)
        assert done.returncode == 0, f"{line}: {done.stderr}"
