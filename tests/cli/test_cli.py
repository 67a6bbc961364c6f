"""The command line as a user meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def cutaway(*words, stdin=""):
    done = subprocess.run(
        [sys.executable, "-m", "cutaway", *words], capture_output=True, text=True, input=stdin, cwd=ROOT, timeout=300
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_help_imports_no_torch():
    code = "import sys; sys.argv=['cutaway','--help']\nfrom cutaway.cli.app import main\n"
    code += "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_run_shows_what_happened_inside():
    out = cutaway("run", "smollm2", "The capital of France is", "--max-tokens", "6", "--trace").stdout
    for word in ("Paris", "Tokens", "blocks.0.attn.pattern", "1 × 9 × 5 × 5", "block 29", "134,515,008", "Without ffn"):
        assert word in out
    losses = [float(x) for x in re.findall(r"prompt (\d+\.\d+) nats", out)]
    assert len(losses) == 2 and losses[1] > losses[0]


def test_piped_run_prints_the_text_alone():
    assert cutaway("run", "smollm2", "The capital of France is", "--max-tokens", "2").stdout == " Paris.\n"


def test_chat_answers_and_remembers():
    out = cutaway("chat", "--max-tokens", "12", stdin="Hello!\nAnd again?\n").stdout
    assert len([line for line in out.splitlines() if line.strip()]) >= 2


def test_eval_counts(tmp_path):
    path = tmp_path / "text"
    path.write_text("The cat sat on the mat. The dog sat on the log.")
    result = json.loads(cutaway("eval", "smollm2", "--text", str(path), "--json").stdout)
    assert 0 < result["loss"] < 6 and result["scored"] == result["tokens"] - 1


COMMANDS = (
    "show bert-tiny", "show gpt2-tiny --diff llama-tiny", "show smollm2 --json", "taps t5-tiny", "list", "doctor",
    "spec check gpt2", "spec print modern-tiny", "spec schema",
)  # fmt: skip


@pytest.mark.parametrize("words", [command.split() for command in COMMANDS], ids=" ".join)
def test_commands_answer(words):
    done = cutaway(*words)
    assert done.returncode == 0 and done.stdout.strip()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nosuch", "hi"], "no such model"),
        (["run", "smollm2", ""], "prompt"),
        (["run", "modern-tiny", "hi"], "no tokenizer"),
        (["run", "smollm2", "hi", "--trace", "--remove", "nosuch"], "is not one of"),
        (["show", "gpt2", "--set", "n_heads=7"], "n_heads"),
        (["eval", "--text", "nosuch.txt"], "cannot be read"),
        (["spec", "check", "nosuch.toml"], "no such preset"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(words, message):
    done = cutaway(*words)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1
