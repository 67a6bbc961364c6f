"""The command line as a user meets it, in processes of its own: what only they show."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def process(*words, stdin="", **environment):
    command = [sys.executable, "-m", "cutaway", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, input=stdin, cwd=ROOT, timeout=300, env=os.environ | environment
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_piped_run_prints_the_text_alone():
    done = process("run", "smollm2", "The capital of France is", "--max-tokens", "2")
    assert (done.stdout, done.stderr) == (" Paris.\n", "")


def test_the_text_may_come_through_a_pipe(tiny):
    how = ("--greedy", "--max-tokens", "8")
    typed, piped = process("run", tiny, "abc", *how), process("run", tiny, "--stdin", *how, stdin="abc")
    assert typed.returncode == 0 and typed.stdout == piped.stdout


def test_a_reader_that_has_enough_is_no_error():
    command = f"{sys.executable} -m cutaway spec schema | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_a_terminal_without_the_letters_shows_others():
    done = process("show", "modern-tiny", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "?" in done.stdout


def test_a_missing_package_is_told_by_name(tmp_path):
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')")
    done = process("show", "gpt2-tiny", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 2 and done.stderr.startswith("cutaway: the package rich is missing; `cutaway doctor`")


def test_help_is_instant():
    """Against the interpreter itself, so that a slow machine is no fault; 0.3 s on an idle one."""

    def best(command):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
            times.append(time.perf_counter() - start)
        return min(times)

    bare = best([sys.executable, "-c", "import cyclopts, rich.console"])
    assert best([sys.executable, "-m", "cutaway", "--help"]) < max(0.3, 4 * bare)


@pytest.mark.parametrize("words", ["--help", "run --help", "show --help", "spec count --help", "lab --help"])
def test_help_imports_nothing_heavy(words):
    code = f"import sys; sys.argv = ['cutaway', *{words.split()!r}]\nfrom cutaway.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\nassert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
