"""The public names: each is there, says what it does, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import cutaway

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", cutaway.__all__)
def test_a_name_is_documented_and_its_examples_run(name):
    thing = getattr(cutaway, name)
    assert thing.__doc__ and thing.__doc__.strip()
    module = thing if isinstance(thing, ModuleType) else importlib.import_module(thing.__module__)
    tests = doctest.DocTestFinder(recurse=False).find(thing, name, module=module)
    assert sum(len(test.examples) for test in tests) >= 2, "an example, and what it needs"
    for test in tests:
        assert doctest.DocTestRunner().run(test).failed == 0


def test_there_are_about_25_names():
    assert 22 <= len(cutaway.__all__) <= 32


WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "cutaway").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8") and "exercises" not in path.parts
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_other_example_runs(name):
    module, public = importlib.import_module(name), [getattr(cutaway, each) for each in cutaway.__all__]
    for test in doctest.DocTestFinder().find(module, name):
        leaf = getattr(module, test.name.rpartition(".")[2], None)
        if not any(leaf is each for each in public):
            assert doctest.DocTestRunner().run(test).failed == 0


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'transformer'"):
        cutaway.transformer  # noqa: B018


def test_dir_lists_the_public_names():
    assert set(cutaway.__all__) <= set(dir(cutaway))


def test_the_version_is_told_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project.get("version", cutaway.__version__) == cutaway.__version__


def test_torch_is_pinned_once_for_everybody():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in pins
    assert all(line.count("==") == 1 and "+" not in line for line in pins if line), "no local builds in the pins"


def test_names_are_reached_from_a_bare_import():
    done = subprocess.run(
        [sys.executable, "-c", "import cutaway; print(cutaway.spec.names()[0])"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
