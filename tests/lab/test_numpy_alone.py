"""The labs run where there is NumPy and nothing else, so that they can run inside a browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.lab import labs

ROOT = Path(__file__).parents[2]
ALL = """
import json, sys
BLOCKED = ("torch", "pydantic", "fastapi", "starlette", "jaxtyping", "scipy", "cyclopts", "rich", "markdown_it")
for name in BLOCKED:
    sys.modules[name] = None
from cutaway.lab import labs
states = {lab: [{}] for lab in labs.IDS}
designs = ("post", "modern", "encoder-decoder")
states["block"] += [{"design": d, "remove": [p]} for d in designs for p in ("attn", "ffn")]
results = {lab: [labs.run(lab, state) for state in given] for lab, given in states.items()}
loaded = sorted(n for n in sys.modules if n.startswith("cutaway.") and sys.modules[n] is not None)
import numpy
print(json.dumps({"numpy": numpy.__version__, "results": results, "loaded": loaded}))
"""


def run_labs(python: Path | str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-c", ALL], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_lab_needs_numpy_and_the_standard_library_alone() -> None:
    report = run_labs(sys.executable)
    assert report["results"]["rope"] == [labs.run("rope", {})]
    allowed = ("cutaway.errors", "cutaway.lab", "cutaway.reference")
    assert [name for name in report["loaded"] if not name.startswith(allowed)] == []
    assert not any(name.startswith(("cutaway.lab.api", "cutaway.lab.app")) for name in report["loaded"])


@pytest.mark.slow
def test_every_lab_gives_the_same_on_numpy_2_0_2(tmp_path: Path) -> None:
    """The NumPy of the browser's Python, in an environment of its own."""
    venv.create(tmp_path / "old", with_pip=True)
    python = tmp_path / "old" / ("Scripts" if os.name == "nt" else "bin") / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "numpy==2.0.2"],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode and not os.environ.get("CI"):
        pytest.skip(f"numpy 2.0.2 cannot be installed here: {installed.stderr[-200:]}")
    assert installed.returncode == 0, installed.stderr
    old, new = run_labs(python), run_labs(sys.executable)
    assert old["numpy"] == "2.0.2"
    agree(old["results"], new["results"])


def agree(a: Any, b: Any) -> None:
    assert type(a) is type(b) or {type(a), type(b)} == {int, float}
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            agree(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            agree(one, other)
    elif isinstance(a, float):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    else:
        assert a == b
