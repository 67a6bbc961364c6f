"""What the lab imports must run where there is only NumPy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILES = sorted(Path(__file__).parents[2].joinpath("cutaway", "reference").glob("*.py"))


def test_everything_but_models_needs_numpy_alone() -> None:
    names = [f"cutaway.reference.{path.stem}" for path in FILES if path.stem not in ("models", "__init__")]
    assert len(names) >= 12
    code = f"""
import sys
for blocked in ("torch", "pydantic", "jaxtyping", "scipy", "cutaway.spec", "cutaway.parts"):
    sys.modules[blocked] = None
for name in {names}:
    __import__(name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=FILES[0].parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_models_reaches_no_torch() -> None:
    code = "import cutaway.reference.models, sys; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=FILES[0].parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
