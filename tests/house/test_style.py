"""What every file keeps to: short, open about what it needs, finished, and free of the machine it was written on."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = sorted(
    path for folder in ("cutaway", "tests", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
PAGE = sorted(path for end in ("svelte", "ts", "css") for path in (ROOT / "web" / "src").rglob(f"*.{end}"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked() -> list[Path]:
    """The files that git knows, or all of them where there is no git (an unpacked sdist)."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    return [ROOT / name for name in done.stdout.split("\0") if name] if done.returncode == 0 else CODE + PAGE


def test_files_have_at_most_400_lines():
    long = {relative(path): len(path.read_text().splitlines()) for path in CODE + PAGE}
    assert CODE and {name: lines for name, lines in long.items() if lines > 400} == {}


def test_family_files_have_at_most_150_lines():
    families = list((ROOT / "cutaway" / "checkpoints" / "families").glob("*.py"))
    assert families and [relative(path) for path in families if len(path.read_text().splitlines()) > 150] == []


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args]
    return len([name for name in names if name not in ("self", "cls")]) + len(arguments.kwonlyargs)


def is_public(path: Path, function: ast.AST) -> bool:
    """Commands are exempt: each parameter of theirs is an option of the command line."""
    return "cli" not in path.parts and not getattr(function, "name", "_").startswith("_")


def test_public_functions_have_at_most_6_parameters():
    wide = []
    for path in CODE:
        if ROOT / "cutaway" not in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_public(path, node):
                wide += [f"{relative(path)}:{node.lineno} {node.name}"] if parameters(node) > 6 else []
    assert wide == []


@pytest.mark.parametrize("folder", ["parts", "models"])
def test_parts_and_models_ask_nothing_softly(folder):
    soft = []
    for path in (ROOT / "cutaway" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
                soft += [f"{relative(path)}:{node.lineno}"] if asks else []
    assert soft == []


def test_only_the_families_know_a_familys_name():
    """Presets, tokenizers' own format names and the course's texts may say such a name; nothing may branch on one.

    `t5` is left out: it is a kind of positions too.
    """
    from cutaway.checkpoints.family import families

    names = {name for family in families() for name in family.model_types}
    names |= {each.architecture for family in families() for each in family.gguf}
    allowed, said = ("families", "tokenizers", "lab", "presets.py"), []
    for path in (ROOT / "cutaway").rglob("*.py"):
        if any(part in allowed for part in path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names - {"t5"}:
                said.append(f"{relative(path)}:{node.lineno} {node.value!r}")
    assert len(names) > 45 and said == []


def test_every_module_reads_its_annotations_late():
    late = "from __future__ import annotations"
    modules = [
        path for path in CODE if re.search(r"^def |^class ", text := path.read_text(), re.M) and late not in text
    ]
    learners = ROOT / "cutaway" / "lab"  # exercises and demos are the learner's own programs, kept bare
    assert [relative(path) for path in modules if learners not in path.parents] == []


def test_packages_alone_list_their_names():
    modules = [path for path in (ROOT / "cutaway").rglob("*.py") if path.name != "__init__.py"]
    assert [relative(path) for path in modules if re.search(r"^__all__\b", path.read_text(), re.M)] == []


def test_nothing_is_left_open():
    words = re.compile(r"\b(TO" + "DO|FIX" + "ME|X" + "XX)\b|Not" + r"ImplementedError(\(\))?\s*$", re.M)
    assert [relative(path) for path in CODE + PAGE if words.search(path.read_text())] == []


def test_nothing_tells_where_it_was_written():
    hosts = ("pypi" + ".org", "python" + "hosted.org", "registry." + "npmjs", "deb." + "debian")
    words = re.compile(r"(?<![\w.])/(?:work|root|home|opt)/|" + "|".join(re.escape(host) for host in hosts))
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        found += [f"{relative(path)}: {hit[0]}" for hit in words.finditer(text)]
    assert found == []
