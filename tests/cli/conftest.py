"""The command line in this process, as a user meets it: its output, its errors and its exit status."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from cutaway import cli, spec
from cutaway.cli import output
from cutaway.loaded import Loaded
from cutaway.models import build
from cutaway.tokenizers.tokenizer import Tokenizer
from cutaway.tokenizers.train import train


@pytest.fixture(autouse=True)
def consoles(monkeypatch):
    """As wide as COLUMNS says now, not as it said when the first test printed something."""
    for console in (output.console, output.errors):
        monkeypatch.setattr(console, "_width", None)


@pytest.fixture
def cutaway(capsys, monkeypatch):
    """Run `cutaway WORDS` and tell what it printed; a traceback would fail the test that asked."""

    def run(*words, stdin="", columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["cutaway", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err, lines=out.splitlines())

    return run


def saved(preset, folder):
    """A folder of ours: a small model with weights of a seed, and a tokenizer of bytes with a chat template."""
    record = spec.set_values(spec.preset(preset), {"vocab_size": 300})
    words = train(["the capital of France is Paris"], 300, special=("<|end|>", "<|user|>", "<|model|>"))
    template = "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}<|model|>"
    tokenizer, model = Tokenizer(words.backend, words.special, {"default": template}), build(record, seed=0).eval()
    for parameter in model.parameters():
        parameter.data *= 4.0  # far enough from even that what it reads tells in what it writes
    Loaded(model, tokenizer, "").save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return saved("modern-tiny", tmp_path_factory.mktemp("cli") / "tiny")


@pytest.fixture(scope="session")
def tiny_two(tmp_path_factory):
    """The same with an encoder and a decoder."""
    return saved("t5-tiny", tmp_path_factory.mktemp("cli") / "two")
