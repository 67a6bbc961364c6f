"""`pip install .` without make, into an environment that has no pip: `cutaway run smollm2` then fetches by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("pip", "cutaway", "__editable__", "_virtualenv", "distutils-precedence")


def said(*command, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=kept | environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An environment without pip that has all that Cutaway needs (by links, so that torch is not installed again)."""
    folder = tmp_path_factory.mktemp("install")
    said(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    (folder / "links").mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(OURS):
            (folder / "links" / entry.name).symlink_to(entry)
    site = next((folder / "venv").rglob("site-packages"))
    (site / "links.pth").write_text(f"{folder / 'links'}\n", encoding="utf-8")
    return folder


@pytest.mark.slow
def test_an_installed_cutaway_fetches_and_runs(bare, tmp_path):
    python, source = bare / "venv" / "bin" / "python", bare / "source"
    said("git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", source)
    said(sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", source)
    where = said(python, "-c", "import cutaway, importlib.util as i; print(cutaway.__file__, i.find_spec('pip'))")
    assert where.startswith(str(bare / "venv")) and where.endswith("None\n")
    assert (Path(where.split()[0]).parent / "lab" / "static" / "index.html").is_file()
    cutaway = bare / "venv" / "bin" / "cutaway"
    cache = {"CUTAWAY_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = (cutaway, "run", "smollm2", "The capital of France is", "--max-tokens", "2")
    assert said(*command, **cache) == " Paris.\n"
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_NO_INDEX": "1"}
    assert said(*command, **cache, **nowhere) == " Paris.\n"  # fetched once
