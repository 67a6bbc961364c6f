from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import CheckpointError
from cutaway.tokenizers import Tokenizer, build, from_folder, from_gguf, to_gguf, train
from cutaway.tokenizers.pretokenizers import BY_NAME, byte_level
from cutaway.tokenizers.sentencepiece import read_model

DATA = Path(__file__).parent / "data"
TEXTS = [
    *json.loads((DATA / "sentencepiece.json").read_text(encoding="utf-8"))["texts"],
    "naïve CAFÉ 1234 it's",
    "\t\n x",
]
valid = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def same(one: Tokenizer, other: Tokenizer) -> None:
    assert other.special == one.special
    assert other.templates == one.templates
    assert other.special_ids == one.special_ids
    for text in TEXTS:
        ids = one.encode(text)
        assert other.encode(text) == ids
        assert other.encode(text, special=False, add_special_tokens=False) == one.encode(
            text, special=False, add_special_tokens=False
        )
        assert other.decode(ids, skip_special=True) == one.decode(ids, skip_special=True)


@pytest.fixture(scope="session")
def small():
    tokenizer = train([*TEXTS, "the cat"] * 3, 320, special=("<|end|>", "<|user|>"))
    tokenizer.templates = {"default": "{{ x }}", "tools": "{{ y }}"}
    return tokenizer


def test_byte_level_bpe(small):
    fields = to_gguf(small)
    assert (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2")
    same(small, from_gguf(fields, "x"))
    build.surround(small.backend, {"bos": 1}, {"eos": 0})
    small.special["bos"] = 1
    same(small, from_gguf(to_gguf(small), "x"))


@pytest.mark.parametrize("name", sorted({rule: name for name, rule in BY_NAME.items()}.values()))
def test_each_way_of_cutting_finds_a_name_that_cuts_alike(small, name):
    cut, rule = byte_level(name)
    model = json.loads(small.backend.to_str())["model"]
    backend = build.byte_bpe(
        model["vocab"], [tuple(pair) for pair in model["merges"]], cut, ignore_merges=rule.ignore_merges
    )
    found = to_gguf(Tokenizer(backend, {}))["tokenizer.ggml.pre"]
    assert BY_NAME[found].patterns == rule.patterns
    assert BY_NAME[found].ignore_merges == rule.ignore_merges


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece(kind):
    backend = read_model(DATA / f"{kind}.model").tokenizer(kind)
    special = {"bpe": {"unk": 0, "bos": 1, "eos": 2}, "unigram": {"pad": 0, "eos": 1, "unk": 2}}[kind]
    if kind == "bpe":
        backend.add_tokens([tokenizers.AddedToken("<user>", normalized=False)])
        build.surround(backend, {"bos": 1}, {})
    else:
        build.surround(backend, {}, {"eos": 1})
    one = Tokenizer(backend, special)
    other = from_gguf(to_gguf(one), "x")
    for text in TEXTS:
        if "<user>" not in text:
            assert other.encode(text) == one.encode(text)
            assert other.decode(one.encode(text)) == one.decode(one.encode(text))


def test_word_pieces():
    from cutaway.checkpoints.pull import pull

    one = from_folder(pull("minilm"))
    fields = to_gguf(one)
    assert fields["tokenizer.ggml.model"] == "bert"
    same(one, from_gguf(fields, "x"))


def test_smollm2_comes_back_as_it_was():
    from cutaway.checkpoints.gguf import GGUF
    from cutaway.checkpoints.pull import pull

    values = GGUF(pull("smollm2")).values
    fields = to_gguf(from_gguf(values, "x"))
    for key, value in fields.items():
        if key != "tokenizer.ggml.add_eos_token":
            assert list(value) == list(values[key]) if isinstance(value, list) else value == values[key]


def test_a_larger_vocabulary_is_filled_up(small):
    fields = to_gguf(small, small.vocab_size + 3)
    assert fields["tokenizer.ggml.tokens"][-1] == f"[PAD{small.vocab_size + 2}]"
    assert fields["tokenizer.ggml.token_type"][-3:] == [5, 5, 5]
    assert from_gguf(fields, "x").vocab_size == small.vocab_size + 3


def test_what_gguf_has_no_name_for_is_refused(small):
    backend = tokenizers.Tokenizer.from_str(small.backend.to_str())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("x", "isolated")
    with pytest.raises(CheckpointError, match="no name for the way"):
        to_gguf(Tokenizer(backend, {}))
    with pytest.raises(CheckpointError, match="kind WordLevel"):
        to_gguf(Tokenizer(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")), {}))


@given(text=valid)
def test_any_text_has_the_same_ids_after_the_round_trip(small, text):
    twin = small.__dict__.setdefault("twin", from_gguf(to_gguf(small), "x"))
    assert twin.encode(text) == small.encode(text)
