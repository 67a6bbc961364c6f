"""`cutaway trace`: each verb's table, its JSON twin and its page."""

from __future__ import annotations

import json

import pytest

from cutaway.cli import main

TEXT = "The capital of France is"
VERBS = {
    "lens": ["lens", "smollm2", TEXT],
    "attribution": ["attribution", "smollm2", TEXT, "--by", "head", "--top", "5"],
    "attention": ["attention", "smollm2", TEXT, "--layer", "3", "--head", "2"],
    "loss": ["loss", "smollm2", TEXT],
    "sizes": ["sizes", "smollm2", TEXT],
    "heads": ["heads", "smollm2", "--top", "1"],
}


@pytest.fixture
def run(monkeypatch):
    def call(*words):
        monkeypatch.setattr("sys.argv", ["cutaway", "trace", *words])
        try:
            main()
        except SystemExit as stopped:
            return stopped.code
        return 0

    return call


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_the_same_in_each_form(verb, run, capsys, tmp_path):
    assert run(*VERBS[verb]) in (0, None)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert run(*VERBS[verb], "--json") in (0, None)
    (table,) = json.loads(capsys.readouterr().out)
    assert table["title"] == text.splitlines()[0]
    page = tmp_path / "page.html"
    assert run(*VERBS[verb], "--html", str(page)) in (0, None)
    html = page.read_text()
    assert table["title"] in html
    assert "//" not in html.replace("</", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [(["attention", "modern-tiny", "ab"], "tokenizer"), (["lens", "nothing-here", "a b"], "no such model")],
)
def test_mistakes_are_one_line(words, message, run, capsys):
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
