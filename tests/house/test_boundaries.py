"""What may be imported by what, tried in a fresh process: the linter of imports does not see `cutaway/__init__`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded_after(code: str) -> set[str]:
    """The top-level packages that are loaded once `code` has run."""
    report = f"{code}\nimport sys; print('loaded:', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rsplit("loaded:", 1)[1].split())


@pytest.mark.parametrize("name", ["errors", "spec", "reference", "reference.models", "tokenizers", "lab.labs"])
def test_torch_is_not_reached(name):
    package = ROOT.joinpath("cutaway", *name.split("."))
    modules = [f"cutaway.{name}"]
    if package.is_dir():
        modules += [f"cutaway.{name}.{path.stem}" for path in package.glob("*.py") if path.stem != "__init__"]
    assert "torch" not in loaded_after("\n".join(f"import {module}" for module in modules))


def test_the_package_itself_loads_nothing():
    assert not {"torch", "numpy", "pydantic", "rich"} & loaded_after("import cutaway")


def test_help_loads_nothing_heavy():
    code = (
        "import contextlib, sys\nfrom cutaway.cli import main\nsys.argv = ['cutaway', '--help']\n"
        "with contextlib.suppress(SystemExit): main()"
    )
    assert not {"torch", "numpy", "pydantic", "fastapi", "tokenizers", "transformers"} & loaded_after(code)
