"""Every command that the README shows is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
LINES = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
COMMANDS = [line for line in LINES if line.startswith("cutaway ")]
ELSEWHERE = {
    "make run": "its two commands are those of test_make below",
    "make test": "runs this file",
    "cutaway lab": "waits for a browser; tests/lab/test_commands.py starts it",
    "make lab": "builds the page, then the same",
}


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_nothing_else_is_shown():
    assert len(COMMANDS) >= 8
    assert set(LINES) - set(COMMANDS) - set(ELSEWHERE) == set()


@pytest.mark.parametrize("line", [line for line in COMMANDS if line not in ELSEWHERE])
def test_a_command_runs(line):
    words = line.replace("cutaway", f"{sys.executable} -m cutaway", 1)
    done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=ROOT, input="", timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and "Traceback" not in done.stderr


def test_make_lists_every_target():
    listed = {line.split()[0] for line in make().stdout.splitlines()}
    assert listed >= {"run", "test", "slow", "check", "bench", "lab", "clean"}
    assert {line.split()[1] for line in LINES if line.startswith("make ")} <= listed


def test_make_run_pulls_then_runs():
    shown = make("-n", "run").stdout
    assert shown.index("cutaway pull smollm2") < shown.index("cutaway run")
