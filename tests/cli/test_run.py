"""`cutaway run`, `chat` and `eval` on the real model and on small ones of each kind."""

from __future__ import annotations

import json
import re


def test_run_shows_what_happened_inside(cutaway):
    done = cutaway("run", "smollm2", "The capital of France is", "--max-tokens", "6", "--trace")
    for words in (
        "Paris",
        "Tokens",
        "blocks.0.attn.pattern",
        "1 × 9 × 5 × 5",
        "block 29",
        "134,515,008",
        "Without ffn",
    ):
        assert words in done.out
    losses = [float(x) for x in re.findall(r"prompt (\d+\.\d+) nats", done.out)]
    assert len(losses) == 2 and losses[1] > losses[0]
    assert max(map(len, done.lines)) <= 80


def test_an_encoder_decoder_is_run_and_looked_into(cutaway, tiny_two):
    done = cutaway("run", tiny_two, "the capital", "--max-tokens", "3", "--trace")
    assert done.status == 0, done.err
    for words in (
        "encoder.blocks.0.attn.pattern",
        "decoder.blocks.0.cross.pattern",
        "after block 1",
        "Without ffn (4 parts)",
    ):
        assert words in done.out


def test_options_that_are_not_given_are_the_checkpoints(cutaway, tiny, tmp_path):
    import cutaway as api

    model = api.load(tiny)
    model.model.spec = model.spec.replace(generation=model.spec.generation.replace(stop_ids=(), temperature=5.0))
    model.save(tmp_path / "hot")
    text = {
        words: cutaway("run", tmp_path / "hot", "the", *words.split()).out for words in ("", "--greedy", "--seed 1")
    }
    assert len(set(text.values())) == 3
    assert text["--greedy"] == cutaway("run", tmp_path / "hot", "the", "--temperature", "0").out


def test_a_stop_text_ends_it(cutaway):
    assert cutaway("run", "smollm2", "The capital of France is", "--stop", ".").out == " Paris\n"


def test_chat_answers_and_remembers(cutaway, tiny):
    once = cutaway("chat", tiny, "--max-tokens", "8", "--temperature", "0", "--json", stdin="hi\n").lines
    twice = cutaway("chat", tiny, "--max-tokens", "8", "--temperature", "0", "--json", stdin="yes\nhi\n").lines
    assert len(twice) == 2 and twice[1] != once[0]


def test_eval_counts(cutaway, tmp_path):
    path = tmp_path / "text"
    path.write_text("The cat sat on the mat. The dog sat on the log.")
    result = json.loads(cutaway("eval", "smollm2", "--text", path, "--json").out)
    assert 0 < result["loss"] < 6 and result["scored"] == result["tokens"] - 1
    assert "perplexity" in cutaway("eval", "smollm2", "--text", path).out
