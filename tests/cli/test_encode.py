"""`cutaway run` and `eval` on models that write no text."""

from __future__ import annotations

import json

import pytest
import torch

import cutaway as api
from tests.checkpoints.families.tiny import rewrite
from tests.test_encoding import folder_of


def test_masked_tokens(cutaway, tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path / "model")
    done = cutaway("run", folder, "the [MASK] sat on the [MASK].")
    assert done.status == 0, done.err
    assert len(done.lines) == 11 and done.lines[0].split() == ["mask", "token", "probability"]
    data = json.loads(cutaway("run", folder, "the [MASK] sat on the [MASK].", "--json").out)
    assert [len(each) for each in data["masks"]] == [5, 5]
    assert data["masks"][0][0]["token"] == done.lines[1].split()[1]
    none = cutaway("run", folder, "the cat")
    assert none.status == 2 and "the text has no [MASK]" in none.err


def test_classes(cutaway, tmp_path):
    folder = folder_of("ForSequenceClassification", tmp_path / "rows", num_labels=2)
    rewrite(folder, id2label={"0": "cat", "1": "dog"}, label2id={"cat": 0, "dog": 1})
    data = json.loads(cutaway("run", folder, "a cat", "--json").out)
    assert {each["label"] for each in data["classes"]} == {"cat", "dog"}
    assert abs(sum(each["probability"] for each in data["classes"]) - 1) < 1e-6
    lines = cutaway("run", folder, "a cat").lines
    assert lines[1].split()[0] == data["classes"][0]["label"]
    tokens = folder_of("ForTokenClassification", tmp_path / "tokens")
    assert [line.split()[0] for line in cutaway("run", tokens, "a cat").lines] == [
        "token",
        "[CLS]",
        "a",
        "cat",
        "[SEP]",
    ]


def test_a_vector(cutaway):
    done = cutaway("run", "minilm", "This is an example sentence")
    assert done.lines[0] == "384 numbers, length 1.0000"
    data = json.loads(cutaway("run", "minilm", "This is an example sentence", "--json").out)
    assert torch.allclose(torch.tensor(data["vector"]), api.load("minilm").embed("This is an example sentence"))


def test_what_is_asked_of_writing_is_refused(cutaway):
    done = cutaway("run", "minilm", "a cat", "--greedy", "--seed", "0", "--max-tokens", "24")
    assert done.status == 2 and not done.out
    assert done.err == "cutaway: --max-tokens, --greedy, --seed: minilm writes no text; leave them out\n"
    for words in (["--top-k", "0"], ["--stop", "."], ["--chat"], ["--temperature", "0"]):
        assert f"{words[0]}: minilm writes no text; leave it out" in cutaway("run", "minilm", "a cat", *words).err


def test_an_encoder_is_looked_into(cutaway):
    done = cutaway("run", "minilm", "a cat", "--trace")
    for words in ("384 numbers", "'[CLS]' 101", "blocks.0.attn.pattern", "1 × 12 × 4 × 4", "Without ffn (6 parts)"):
        assert words in done.out
    assert "Likeliest" not in done.out and max(map(len, done.lines)) <= 80
    inside = json.loads(cutaway("run", "minilm", "a cat", "--trace", "--json").out)["inside"]
    assert inside["shapes"]["head.vectors"] == [1, 384] and "likeliest" not in inside


def test_the_pseudo_loss_of_a_masked_model(cutaway, tmp_path):
    folder, path = folder_of("ForMaskedLM", tmp_path / "model"), tmp_path / "text.txt"
    path.write_text("the cat sat on the mat. " * 8, encoding="utf-8")
    data = json.loads(cutaway("eval", folder, "--text", path, "--json").out)
    loaded = api.load(folder)
    ids = loaded.encode(path.read_text())
    total, n = 0.0, 0
    for start in range(0, len(ids), 40):
        window = ids[start : start + 40]
        for place, token in enumerate(window):
            if token > 4:
                hidden = [*window[:place], 4, *window[place + 1 :]]
                total -= float(loaded(torch.tensor([hidden]))[0, place].double().log_softmax(-1)[token])
                n += 1
    assert data["scored"] == n and abs(data["loss"] - total / n) < 1e-5
    assert "pseudo-loss" in cutaway("eval", folder, "--text", path).out


@pytest.mark.parametrize(("kind", "message"), [("Model", "vectors head predicts no tokens")])
def test_what_cannot_be_scored(kind, message, cutaway, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat", encoding="utf-8")
    done = cutaway("eval", folder_of(kind, tmp_path / "model"), "--text", path)
    assert done.status == 2 and message in done.err and done.err.count("\n") == 1


def test_two_stacks_cannot_be_scored_on_one_text(cutaway, tiny_two, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat", encoding="utf-8")
    done = cutaway("eval", tiny_two, "--text", path)
    assert done.status == 2 and "one text is not enough" in done.err
