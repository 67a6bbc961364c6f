"""The README and the docs tell the truth: every command in them runs, and prints what is shown below it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import saved

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
TEXT, INSIDE, CHECKPOINTS = (TEXTS[page] for page in ("README.md", "docs/inside.md", "docs/checkpoints.md"))
BLOCKS = {
    "README.md": {"sh", "console", "python"}, "docs/inside.md": {"sh", "console", "python"},
    "docs/checkpoints.md": {"sh", "console"}, "docs/tour.md": {"sh", "python", "text"},
}  # fmt: skip
"""The kinds of block on a page: sh, console and python are run here, those of the tour in tests/test_tour.py."""

GENERATED = ("docs/glossary.md", "docs/taps.md")


def fenced(kind: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.S)


def told(text: str) -> list[str]:
    """The commands of a page's blocks, and those in a line of prose that could be typed as they stand."""
    blocks = [line for block in fenced("sh", text) for line in block.splitlines() if line.strip()]
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    inline = [line for line in re.findall(r"`(cutaway \w+ [^`]+)`", prose) if not re.search(r"\b[A-Z]{3,}\b", line)]
    return [re.split(r"  +#", line)[0].strip() for line in (*blocks, *inline)]


LINES = list(dict.fromkeys(line for text in TEXTS.values() for line in told(text)))
COMMANDS = [line for line in LINES if line.startswith(("cutaway ", "python -m cutaway"))]
ELSEWHERE = {
    "make run": "its two commands are those of test_make below",
    "make test": "runs this file",
    "cutaway lab": "waits for a browser; tests/lab/test_commands.py starts it",
}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def started(line: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = re.sub(r"^(cutaway|python -m cutaway)", f"{sys.executable} -m cutaway", line)
    return subprocess.run(words, shell=True, capture_output=True, text=True, cwd=folder, input="", timeout=1200)


def run(line: str, folder: Path = ROOT) -> str:
    done = started(line, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and "Traceback" not in done.stderr
    return done.stdout


def same(shown: str, printed: str) -> bool:
    """Word for word, numbers with a fraction to 1%."""
    pairs = list(zip(shown.split(), printed.split(), strict=False))
    if len(shown.split()) != len(printed.split()):
        return False
    return all(a == b or (_number(a) and abs(_number(a) / (_number(b) or 1e-9) - 1) < 0.01) for a, b in pairs)


def _number(word: str) -> float:
    return float(word) if re.fullmatch(r"-?\d+\.\d+", word) else 0.0


def test_nothing_else_is_shown():
    assert len(COMMANDS) >= 30
    assert set(LINES) - set(COMMANDS) - set(ELSEWHERE) == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_run(page):
    """And stands between fences: an indented one would be missed."""
    assert set(re.findall(r"^```(.*)\n(?:.*\n)*?```$", TEXTS[page], re.M)) == BLOCKS.get(page, set())
    assert re.findall(r"(?<=\n\n)    \S.*", re.sub(r"```.*?```", "", TEXTS[page], flags=re.S)) == []


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in COMMANDS if line not in ELSEWHERE])
def test_a_command_runs(line, tmp_path):
    """In a folder of its own, as some write there; the files that they read are beside them."""
    for name in re.findall(r"[\w.]+\.md", line):
        shutil.copy(ROOT / name, tmp_path)
    run(line, tmp_path)


@pytest.mark.parametrize("block", fenced("console"), ids=lambda block: block.splitlines()[0])
def test_a_command_prints_what_is_shown(block):
    check(block)


@pytest.mark.slow
@pytest.mark.parametrize("block", fenced("console", INSIDE), ids=lambda block: block.splitlines()[0])
def test_a_trace_prints_what_is_shown(block):
    check(block)


@pytest.mark.slow
def test_a_refusal_is_as_shown(tmp_path):
    (block,) = fenced("console", CHECKPOINTS)
    command, shown = block.splitlines()
    saved("textbook-tiny", tmp_path / "runs" / "textbook")
    done = started(command.removeprefix("$ "), tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(shown.removesuffix(" ..."))


def test_the_python_of_looking_inside_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(fenced("python", INSIDE))  # the second goes on where the first ends
    exec(compile(code, "inside.md", "exec"), {})
    assert (tmp_path / "heads.png").is_file() and "Patching attn.z" in capsys.readouterr().out


def check(block: str) -> None:
    """Every line in its order; `...` stands for lines left out."""
    command, *shown = block.splitlines()
    printed = run(command.removeprefix("$ ")).splitlines()
    assert len(shown) >= 8
    place, gap = 0, False
    for line in shown:
        if line.strip() == "...":
            gap = True
            continue
        found = next((i for i in range(place, len(printed)) if same(line, printed[i])), None)
        assert found is not None and (gap or found == place), f"not printed here: {line}"
        place, gap = found + 1, False


def test_the_python_runs(capsys):
    (code,) = fenced("python")
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "Paris" in out and "blocks.3.attn.q (1, 9, " in out


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_lines_are_short(page):
    text = TEXTS[page]
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target
    long = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
    assert long == [] or page in GENERATED


def test_every_folder_that_is_named_is_there():
    for folder in re.findall(r"`(cutaway/[\w/]+)`", TEXT):
        assert (ROOT / folder).is_dir(), folder


def test_make_lists_every_target():
    listed = {line.split()[0] for line in make().stdout.splitlines()}
    assert listed >= {"run", "test", "slow", "check", "bench", "lab", "clean"}
    assert set(re.findall(r"`make (\w+)`", TEXT)) | {line.split()[1] for line in LINES if "make " in line} <= listed


def test_make_run_pulls_then_runs():
    shown = make("-n", "run").stdout
    assert shown.index("cutaway pull smollm2") < shown.index("cutaway run")
