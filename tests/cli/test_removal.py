"""`cutaway run --remove`: what each kind of model predicts with and without some parts, and its loss on a text."""

from __future__ import annotations

import json

import pytest
import torch

import cutaway as api
from cutaway.tracing.edit import Part, edit, zero
from tests.test_encoding import folder_of


def as_json(cutaway, *words):
    done = cutaway("run", *words, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def loss(logits, targets):
    return float(-logits.double().log_softmax(-1).gather(-1, torch.tensor(targets)[:, None]).mean())


def test_heads_and_whole_parts_are_removed_at_once(cutaway, tiny):
    words = ("--remove", "blocks.1.ffn", "--remove", "mask", "--remove", "blocks.0.attn.heads.3", "--max-tokens", "4")
    done = as_json(cutaway, tiny, "the capital of France", *words)["without"]
    assert done["parts"] == ["blocks.1.ffn", "blocks.0.attn.mask", "blocks.1.attn.mask", "blocks.0.attn.head.3"]
    model = api.load(tiny)
    ids, unmasked = model.encode("the capital of France"), api.remove(model.model, "mask")
    edits = {"blocks.1.ffn.update": zero(), "blocks.0.attn.z": zero(Part(heads=[3]))}
    with torch.no_grad(), edit(unmasked, edits):
        logits = unmasked(torch.tensor([ids]))[0]
    assert done["without"]["loss"] == pytest.approx(loss(logits[:-1], ids[1:]), rel=1e-4)
    assert done["without"]["next"] == model.decode([int(logits[-1].argmax())])
    assert done["changed"] and done["written"] and done["whole"] != done["without"]


def test_the_loss_is_that_of_a_file(cutaway, tiny, tmp_path):
    path = tmp_path / "text"
    path.write_text("the capital of France is Paris")
    words = (tiny, "the", "--remove", "attn", "--text", path, "--max-tokens", "2")
    done = as_json(cutaway, *words)["without"]
    measured = json.loads(cutaway("eval", tiny, "--text", path, "--json").out)["loss"]
    assert done["whole"]["loss"] == pytest.approx(measured) != done["without"]["loss"]
    shown = "".join(cutaway("run", *words).out.split())  # a long path goes on in the next line
    assert "Withoutattn(2parts)" in shown and f"losson{path}{measured:.3f}natsatoken" in shown
    assert "needs --remove" in cutaway("run", tiny, "the", "--text", path).err


def test_an_encoder_decoder_predicts_a_target(cutaway, tiny_two, tmp_path):
    done = as_json(cutaway, tiny_two, "the capital", "--remove", "cross", "--max-tokens", "3")["without"]
    assert done["parts"] == ["decoder.blocks.0.cross", "decoder.blocks.1.cross"] and done["changed"]
    assert done["without"]["loss"] > done["whole"]["loss"] > 0
    path, model = tmp_path / "target", api.load(tiny_two)
    path.write_text("Paris")
    done = as_json(cutaway, tiny_two, "the capital", "--remove", "cross.head.1", "--text", path)["without"]
    target, start = model.encode("Paris"), int(model.spec.generation.start_id)
    with torch.no_grad():
        memory = model.model.encode(torch.tensor([model.encode("the capital")]))
        logits = model.model(torch.tensor([[start, *target[:-1]]]), api.Given(memory=memory))[0]
    assert done["whole"]["loss"] == pytest.approx(loss(logits, target), rel=1e-5)


def test_encoders_guess_classify_and_embed(cutaway, tmp_path):
    masked = folder_of("ForMaskedLM", tmp_path / "masked")
    done = as_json(cutaway, masked, "the [MASK] sat on the mat.", "--remove", "positions")
    assert done["without"]["whole"]["next"] == done["masks"][0][0]["token"]
    assert done["without"]["without"]["loss"] != done["without"]["whole"]["loss"]
    shown = cutaway("run", masked, "the [MASK] sat on the mat.", "--remove", "blocks.0").out
    assert "Without blocks.0 (1 part)" in shown and "pseudo-loss on the prompt" in shown
    classes = folder_of("ForSequenceClassification", tmp_path / "classes", num_labels=2)
    done = as_json(cutaway, classes, "a cat", "--remove", "embedding.norm")["without"]
    assert done["changed"] and done["whole"]["loss"] is None
    shown = cutaway("run", "minilm", "a cat", "--remove", "blocks[3:].ffn").out
    assert "Without blocks[3:].ffn (3 parts)" in shown and "cosine with the whole model's 1.0000" in shown


def test_a_part_named_twice_is_one_part(cutaway, tiny):
    words = ("--remove", "blocks.0.attn.head.1", "--remove", "head.1", "--remove", "blocks.0.attn.heads.1")
    assert as_json(cutaway, tiny, "the", *words)["without"]["parts"] == ["blocks.0.attn.head.1", "blocks.1.attn.head.1"]


def test_what_changes_nothing_says_so(cutaway, tiny):
    done = cutaway("run", tiny, "t", "--remove", "mask", "--max-tokens", "1")
    assert "It changed nothing" in done.out
    assert "It changed nothing" not in cutaway("run", tiny, "t", "--remove", "attn", "--max-tokens", "1").out


@pytest.mark.parametrize("word", ["cross", "blocks.0.atn", "blocks.9", "blocks.0.attn.head.99"])
def test_a_part_that_is_not_there_is_one_line(cutaway, tiny, word):
    done = cutaway("run", tiny, "the", "--remove", word)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1) and word in done.err


def test_the_parts_are_listed(cutaway):
    done = cutaway("run", "t5-tiny", "--remove", "help")
    for words in ("encoder.blocks.0.attn.head[0:4]", "decoder.blocks.0.cross", "the branch gives 0"):
        assert words in done.out
