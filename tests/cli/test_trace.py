"""`cutaway trace`: each verb's answer, its JSON twin, its page and its picture, for every kind of model."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import saved
from tests.conftest import ROOT

PASSAGE = ROOT / "CONTRIBUTING.md"

TEXT = "The capital of France is"
PAIR = ["The capital of France is", "The capital of Spain is", "--right", " Paris", "--wrong", " Madrid"]
REAL = {
    "lens": ["lens", "smollm2", TEXT],
    "attribution": ["attribution", "smollm2", TEXT, "--by", "head", "--top", "5"],
    "attention": ["attention", "smollm2", TEXT, "--layer", "3", "--head", "2"],
    "loss": ["loss", "smollm2", TEXT],
    "sizes": ["sizes", "smollm2", TEXT],
    "heads": ["heads", "smollm2", "--top", "1"],
    "rollout": ["rollout", "smollm2", TEXT],
    "entropy": ["entropy", "smollm2", TEXT],
    "patch": ["patch", "smollm2", *PAIR],
    "paths": ["paths", "smollm2", *PAIR, "--to", "24"],
    "gradients": ["gradients", "smollm2", TEXT, "--token", " Paris", "--than", " Madrid", "--most", "200"],
    "neuron": ["neuron", "smollm2", "--layer", "20", "--neuron", "7", "--text", str(PASSAGE), "--top", "5"],
}
ASKED = ["xa the capital", "xe the capital", "--right", "a", "--wrong", "e"]
VERBS = {
    "lens": ["the capital"],
    "loss": ["the capital"],
    "sizes": ["the capital"],
    "attention": ["the capital", "--layer", "1", "--head", "3"],
    "heads": ["--top", "1"],
    "rollout": ["the capital"],
    "entropy": ["the capital"],
    "attribution": ["the capital", "--by", "neuron"],
    "patch": [*ASKED, "--what", "head"],
    "paths": [*ASKED, "--to", "1.2.k"],
    "gradients": ["the capital", "--token", "a", "--than", "e", "--most", "64", "--tolerance", "1"],
    "neuron": ["--layer", "1", "--neuron", "13", "--text", str(PASSAGE), "--top", "4", "--window", "8"],
    "tuned": ["the capital", "--train", str(PASSAGE), "--steps", "3", "--tokens", "200", "--window", "20"],
}
REFUSED = {("attribution", "masked"): "no sum of parts", ("loss", "masked"): "no mask token"}
MORE = [
    ("two", ["attention", "the capital", "--cross"]),
    ("two", ["attention", "the capital", "--encoder", "--target", "is"]),
    ("two", ["entropy", "the capital", "--cross"]),
    ("two", ["rollout", "the capital", "--encoder"]),
    ("two", ["patch", *ASKED, "--encoder"]),
    ("two", ["neuron", "--layer", "1", "--neuron", "13", "--text", str(PASSAGE), "--encoder"]),
    ("two", ["patch", *ASKED, "--what", "cross"]),
    ("one", ["lens", "5 3 9", "--ids"]),
    ("one", ["attribution", "the capital", "--token", "a", "--position", "0"]),
]


@pytest.fixture(scope="session")
def models(tiny, tiny_two, tmp_path_factory):
    masked = saved("bert-tiny", tmp_path_factory.mktemp("cli") / "masked")
    return {"one": tiny, "two": tiny_two, "masked": masked}


def check(cutaway, words, folder):
    """The four forms say the same."""
    done = cutaway("trace", *words)
    assert done.status == 0, done.err
    assert max(map(len, done.lines)) <= 80
    parts = json.loads(cutaway("trace", *words, "--json").out)["tables"]
    assert parts[0]["title"] == done.lines[0]
    page, picture = folder / "page.html", folder / "picture.png"
    assert cutaway("trace", *words, "--html", page, "--png", picture).out.split() == [str(page), str(picture)]
    html = page.read_text()
    assert parts[0]["title"] in html and "<svg " in html and "<script" not in html
    assert "//" not in html.replace("</", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    return parts


@pytest.mark.parametrize("kind", ["one", "two", "masked"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_answers_or_refuses_for_every_kind_of_model(verb, kind, cutaway, models):
    words = [verb, models[kind], *VERBS[verb]]
    done = cutaway("trace", *words)
    if (verb, kind) in REFUSED:
        assert done.status == 2 and REFUSED[verb, kind] in done.err and done.err.count("\n") == 1
    else:
        assert done.status == 0 and max(map(len, done.lines)) <= 80, done.err


@pytest.mark.parametrize(("kind", "words"), MORE, ids=lambda each: each if isinstance(each, str) else " ".join(each))
def test_options(kind, words, cutaway, models):
    done = cutaway("trace", words[0], models[kind], *words[1:])
    assert done.status == 0 and max(map(len, done.lines)) <= 80, done.err


@pytest.mark.parametrize("verb", ["lens", "attribution", "patch", "tuned"])
def test_each_form_says_the_same(verb, cutaway, models, tmp_path):
    check(cutaway, [verb, models["one"], *VERBS[verb]], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("verb", REAL)
def test_each_form_says_the_same_of_a_real_model(verb, cutaway, tmp_path):
    parts = check(cutaway, REAL[verb], tmp_path)
    if verb == "patch":
        effects = parts[0]["values"]
        assert effects[0][3] == pytest.approx(1, abs=0.01) and effects[29][4] > 0.9 > 0.1 > effects[29][3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("attention modern-tiny ab", "--ids"),
        ("lens nothing-here ab", "no such model"),
        ("lens ONE ''", "no tokens"),
        ("loss ONE a", "at least two"),
        ("lens ONE ab --position 7", "0 to 1"),
        ("lens ONE ab --ids", "numbers"),
        ("lens ONE 999 --ids", "not in the vocabulary"),
        ("lens ONE ab --target b", "no encoder"),
        ("lens ONE ab --html nowhere/p.html", "cannot be written"),
        ("lens ONE ab --png p.gif", ".png"),
        ("lens ONE ab --png p.svg --html ./p.svg", "name two files"),
        ("attribution ONE 5 --ids --token 999", "the ids 0 to 299"),
        ("attribution ONE 5 --ids --token=-5", "the ids 0 to 299"),
        ("attention ONE ab --layer 9", "layers 0 to 1"),
        ("attention ONE ab --head -1", "heads 0 to 3"),
        ("attention ONE ab --cross", "no cross"),
        ("attention TWO ab --cross --encoder", "choose one"),
        ("attribution ONE ab --token zzz", "is 3 tokens"),
        ("attribution ONE 5 --ids --token 999", "ids 0 to"),
        ("lens ONE LONG", "context"),
        ("patch ONE ab ac --right bb --wrong c", "is 2 tokens"),
        ("patch ONE ab abc --right b --wrong c", "2 tokens, the corrupted one 3"),
        ("patch ONE ab ac --right b", "--wrong"),
        ("paths ONE ab ac --right b --wrong c --to 7.1.q", "end at 1"),
        ("paths ONE ab ac --right b --wrong c --to x", "write logits"),
        ("patch ONE ab ac --right b --wrong c --what cross", "one stack has no cross-attention"),
        ("patch TWO ab ac --right b --wrong c --what cross --encoder", "an encoder has no cross-attention"),
        ("gradients ONE ab --token zz", "is 2 tokens"),
        ("gradients ONE ab --baseline zz", "is 2 tokens"),
        ("neuron ONE --layer 0 --neuron 999 --text PASSAGE", "neurons 0 to"),
        ("neuron ONE --layer 9 --neuron 0 --text PASSAGE", "layers 0 to 1"),
        ("neuron ONE --layer 0 --neuron 0 --text nowhere.txt", "cannot be read"),
        ("neuron ONE --layer 0 --neuron 0 --text EMPTY", "no tokens"),
        ("neuron ONE --layer 0 --neuron 0 --text PASSAGE --window 0", "Must be >= 1"),
        ("lens ONE ab --top -1", "Must be >= 1"),
        ("neuron ONE --layer 0 --neuron 0 --text FOLDER", "cannot be read"),
        ("tuned ONE ab --train EMPTY", "two windows"),
    ],
)
def test_mistakes_are_one_line(words, message, cutaway, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = {
        "ONE": models["one"],
        "TWO": models["two"],
        "''": "",
        "LONG": "a" * 2000,
        "PASSAGE": PASSAGE,
        "EMPTY": "/dev/null",
    }
    done = cutaway("trace", *[named.get(word, word) for word in words.split()])
    assert done.status == 2 and message in done.err, done.err
    assert len(done.err.splitlines()) == 1 and done.err.startswith("cutaway: ")
