from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.checkpoints.pull import pull
from cutaway.errors import CheckpointError, InputError
from cutaway.tokenizers import Tokenizer, build, from_folder, from_gguf, train
from cutaway.tokenizers.pretokenizers import BY_NAME, byte_level
from cutaway.tokenizers.sentencepiece import read_model

DATA = Path(__file__).parent / "data"
CORPUS = [
    "the cat sat on the mat, and the dog said it's 1234 miles",
    "naïve café 日本語 🙂",
    "def f(x):\n\treturn x",
] * 4
valid = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.fixture(scope="session")
def small():
    return train(CORPUS, 320, special=("<|end|>", "<|user|>"))


@pytest.fixture(scope="session")
def minilm():
    return pull("minilm")


@pytest.fixture(scope="session")
def smollm2_values():
    from cutaway.checkpoints.gguf import GGUF

    return GGUF(pull("smollm2")).values


@pytest.fixture(scope="session")
def spm():
    return json.loads((DATA / "sentencepiece.json").read_text(encoding="utf-8"))


def test_smollm2_cases(smollm2_values, shared):
    tokenizer = from_gguf(smollm2_values, "smollm2")
    assert (tokenizer.vocab_size, tokenizer.special) == (49152, {"bos": 1, "eos": 2, "unk": 0, "pad": 2})
    assert tokenizer.special_ids == frozenset(range(17))
    case = json.loads((shared / "cases" / "smollm2.json").read_text(encoding="utf-8"))
    for entry in case["tokenization"]:
        ids = tokenizer.encode(entry["text"])
        assert ids == entry["ids"]
        assert tokenizer.encode(entry["text"], special=False) == entry["special_text_not_parsed_ids"]
        assert tokenizer.decode(ids) == entry["decoded"]
        assert tokenizer.decode(ids, skip_special=True) == entry["decoded_skip_special"]
        # where the peer that wrote the tokens cuts otherwise, they belong to its ids
        assert [tokenizer.token(i) for i in entry.get("ids_transformers_gguf", ids)] == entry["tokens"]
    passage = (shared / "cases" / case["perplexity"]["file"]).read_text(encoding="utf-8")
    ids = tokenizer.encode(passage)
    assert ids[: len(case["perplexity"]["ids_first"])] == case["perplexity"]["ids_first"]


def minilm_cases(shared):
    return json.loads((shared / "cases" / "minilm.json").read_text(encoding="utf-8"))["cases"]


def test_minilm_cases(minilm, shared):
    tokenizer = from_folder(minilm)
    for case in minilm_cases(shared):
        ids = tokenizer.encode(case["text"], max_length=256)
        assert ids == case["ids"]
        assert [tokenizer.token(i) for i in ids][: len(case["tokens"])] == case["tokens"]


def test_old_word_piece_files_say_the_same(minilm, shared, tmp_path):
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path / name)
    old, new = from_folder(tmp_path), from_folder(minilm)
    for case in minilm_cases(shared):
        assert old.encode(case["text"], max_length=256) == case["ids"]
    assert old.encode_pair("one text", "and two") == new.encode_pair("one text", "and two")
    assert old.encode("[MASK] it") == new.encode("[MASK] it")
    assert old.special == new.special


def test_word_pieces_in_gguf_say_the_same(minilm, shared):
    tokens = (minilm / "vocab.txt").read_text(encoding="utf-8").splitlines()
    marked = [t if t[0] + t[-1] == "[]" else t[2:] if t.startswith("##") else "▁" + t for t in tokens]
    values = {
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": marked, "tokenizer.ggml.cls_token_id": 101,
        "tokenizer.ggml.seperator_token_id": 102, "tokenizer.ggml.unknown_token_id": 100,
        "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.mask_token_id": 103,
    }  # fmt: skip
    tokenizer = from_gguf(values, "bert.gguf")
    for case in minilm_cases(shared):
        assert tokenizer.encode(case["text"], max_length=256) == case["ids"]
    assert tokenizer.decode(tokenizer.encode("unaffable words"), skip_special=True) == "unaffable words"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_models_cut_as_sentencepiece_does(kind, spm, tmp_path):
    shutil.copy(DATA / f"{kind}.model", tmp_path)
    tokenizer = from_folder(tmp_path)
    for text, ids, decoded in zip(spm["texts"], spm[kind], spm[f"{kind}_decoded"], strict=True):
        assert tokenizer.encode(text, special=False, add_special_tokens=False) == ids
        if 2 not in ids or kind == "bpe":  # unknown pieces are shown in another way
            assert tokenizer.decode(ids) == decoded


def pieces_of(kind):
    """The metadata that a GGUF file would have for one of the models."""
    backend = read_model(DATA / f"{kind}.model").tokenizer(kind)
    model = json.loads(backend.to_str())["model"]
    special = {t.content for t in backend.get_added_tokens_decoder().values()}
    if kind == "unigram":
        tokens, scores = zip(*model["vocab"], strict=True)
    else:
        tokens = sorted(model["vocab"], key=model["vocab"].get)
        scores = [-float(i) for i in range(len(tokens))]
    types = [
        3 if t in special else 2 if t == "<unk>" else 4 if t == "<user>" else 6 if t[:3] == "<0x" else 1 for t in tokens
    ]
    return list(tokens), np.array(scores, np.float32), np.array(types, np.int32)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_in_gguf(kind, spm):
    tokens, scores, types = pieces_of(kind)
    values = {
        "tokenizer.ggml.model": {"bpe": "llama", "unigram": "t5"}[kind], "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.unknown_token_id": tokens.index("<unk>"), "tokenizer.ggml.eos_token_id": tokens.index("</s>"),
        "tokenizer.ggml.remove_extra_whitespaces": kind == "unigram",
    }  # fmt: skip
    if kind == "bpe":
        values["tokenizer.ggml.bos_token_id"] = tokens.index("<s>")
    tokenizer = from_gguf(values, "spm.gguf")
    for text, ids in zip(spm["texts"], spm[kind], strict=True):
        if "<" in text or any(c in text for c in "ﬁ\xa0\t\n" if kind == "unigram"):
            continue  # these need the model's table of characters, or fall apart at special tokens
        added = [*ids, tokenizer.special["eos"]] if kind == "unigram" else [tokenizer.special["bos"], *ids]
        assert tokenizer.encode(text) == added
        assert tokenizer.encode(text, add_special_tokens=False) == ids
    if kind == "bpe":
        assert tokenizer.encode("x<user>y z")[2:4] == [tokens.index("x"), tokens.index("<user>")]
        no_space = from_gguf(values | {"tokenizer.ggml.add_space_prefix": False}, "spm.gguf")
        first = no_space.encode("the", add_special_tokens=False)[0]
        assert not no_space.token(first).startswith("▁")
        assert no_space.decode([tokens.index("▁the")]) == " the"


def bpe_values(tokenizer: Tokenizer, **more) -> dict:
    model = json.loads(tokenizer.backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(tokens) - 2), "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
    } | {f"tokenizer.ggml.{key}": value for key, value in more.items()}  # fmt: skip


@given(text=valid)
def test_byte_level_bpe_gives_every_text_back(small, text):
    ids = small.encode(text, special=False)
    assert small.decode(ids) == text
    assert all(0 <= i < small.vocab_size for i in ids)


@given(text=valid)
def test_the_same_tokenizer_through_gguf(small, text):
    twin = from_gguf(bpe_values(small), "x.gguf")
    assert twin.encode(text) == small.encode(text)


@given(text=valid)
@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_every_known_cutting_loses_nothing(name, text):
    cut, _ = byte_level(name)
    from tokenizers.decoders import ByteLevel

    assert ByteLevel().decode([piece for piece, _ in cut.pre_tokenize_str(text)]) == text


CUTS = {
    "gpt-2": ["I", "'ll", " pay", " 12345", "€", "\n\n ", " ok", "   "],
    "smollm": ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5", "€", "\n\n ", " ok", "   "],
    "llama-bpe": ["I", "'ll", " pay", " ", "123", "45", "€\n\n", " ", " ok", "   "],
    "qwen2": ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5", "€\n\n", " ", " ok", "   "],
    "gpt-4o": ["I'll", " pay", " ", "123", "45", "€\n\n", " ", " ok", "   "],
    "tekken": ["I", "'ll", " pay", " ", "1", "2", "3", "4", "5", "€\n\n", " ", " ok", "   "],
    "deepseek-v3": ["I", "'ll", " pay", " ", "123", "45", "€\n\n", " ", " ok", "   "],
    "falcon": ["I", "'", "ll", " pay", " ", "123", "45", "€", "\n\n ", " ok", "   "],
    "bloom": ["I'll", " pay", " 12345€", "\n\n ", " ok", "   "],
    "default": ["I", "'", "ll", " pay", " ", "123", "45", "€", "\n\n ", " ok", "   "],
}


@given(text=valid)
def test_the_oldest_cutting_is_that_of_the_library(text):
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    plain = ByteLevel(add_prefix_space=False, use_regex=True)
    theirs = {"gpt-2": plain, "smollm": Sequence([Digits(individual_digits=True), plain])}
    for name, other in theirs.items():
        ours, _ = byte_level(name)
        assert ours.pre_tokenize_str(text) == other.pre_tokenize_str(text)


@pytest.mark.parametrize("name", CUTS)
def test_cuttings_by_name(name):
    from tokenizers.decoders import ByteLevel

    cut, _ = byte_level(name)
    text = "I'll pay 12345€\n\n  ok   "
    assert [ByteLevel().decode([piece]) for piece, _ in cut.pre_tokenize_str(text)] == CUTS[name]


def test_what_a_name_brings_with_it(small):
    ids = small.encode("cats")
    assert from_gguf(bpe_values(small, pre="llama-bpe"), "x").encode("cats")[0] == 1
    assert from_gguf(bpe_values(small, pre="llama-bpe", add_bos_token=False), "x").encode("cats") == ids
    both = from_gguf(bpe_values(small, add_bos_token=True, add_eos_token=True), "x")
    assert both.encode("cats") == [1, *ids, 0]
    assert both.encode("cats", add_special_tokens=False) == ids
    assert both.encode("cats", max_length=3) == [1, ids[0], 0]
    assert both.encode_pair("cats", "cats") == ([1, *ids, 0, *ids, 0], [0] * (len(ids) + 2) + [1] * (len(ids) + 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "rwkv"}, "model is 'rwkv', known are gpt2, llama"),
        ({"pre": "nothing-like-it"}, "'nothing-like-it', which is not known here.*known are:.*smollm"),
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": 5}, "tokens is no list of str"),
        ({"tokens": ["a", 1]}, "tokens is no list of str"),
        ({"tokens": ["a", "a"], "token_type": [1, 1], "eos_token_id": 0}, "'a' has two ids, 0 and 1"),
        ({"token_type": [1]}, "token_type has 1 items"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000"),
        ({"eos_token_id": -1}, "eos_token_id is -1"),
        ({"eos_token_id": "0"}, "eos_token_id is str"),
        ({"merges": ["no space", "zz zz"]}, "merges do not fit"),
        ({"merges": ["nospace"]}, "merges do not fit"),
        ({"add_bos_token": "yes"}, "add_bos_token is str"),
        ({"model": "llama"}, "scores is missing"),
        ({"model": "t5", "scores": [0.0]}, "scores has 1 items"),
    ],
)
def test_damaged_metadata_is_named(small, change, message):
    with pytest.raises(CheckpointError, match=message):
        from_gguf(bpe_values(small, **change), "x.gguf")


def test_a_file_without_a_tokenizer_is_named():
    with pytest.raises(CheckpointError, match=r"x\.gguf: tokenizer\.ggml\.tokens is missing"):
        from_gguf({}, "x.gguf")


@given(text=valid)
def test_saved_and_loaded(small, text, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "saved"
    if not folder.exists():
        small.save(folder)
    again = from_folder(folder)
    assert again.encode(text) == small.encode(text)
    assert again.special == small.special
    assert again.special_ids == small.special_ids == {0, 1}


def test_other_libraries_open_what_is_saved(small, tmp_path):
    transformers = pytest.importorskip("transformers")
    small.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in CORPUS[:3]:
        assert theirs.encode(text) == small.encode(text)
        assert theirs.decode(small.encode(text)) == text
    assert theirs.eos_token == "<|end|>"


def test_vocab_and_merges_files(small, tmp_path):
    model = json.loads(small.backend.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (tmp_path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    settings = {"eos_token": "<|end|>", "bos_token": {"content": "<|user|>"}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(settings), encoding="utf-8")
    plain = from_folder(tmp_path)
    for text in CORPUS[:3]:
        assert plain.encode(text) == small.encode(text)
    assert plain.encode("a<|end|>") == [*small.encode("a"), 0]
    assert plain.special == {"eos": 0, "bos": 1}
    (tmp_path / "tokenizer_config.json").write_text(
        '{"add_bos_token": true, "add_prefix_space": true}', encoding="utf-8"
    )
    assert from_folder(tmp_path).encode("cat") == [1, *small.encode(" cat")]
    settings = '{"cls_token": "<|user|>", "sep_token": "<|end|>"}'
    (tmp_path / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    assert from_folder(tmp_path).encode("cat") == [1, *small.encode("cat"), 0]


def test_flags_win_over_the_post_processor(small, tmp_path):
    small.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) | {"bos_token": "<|user|>"}
    for flags, ids in [({"add_bos_token": True}, [1]), ({"add_eos_token": True}, [0]), ({"add_bos_token": False}, [])]:
        path.write_text(json.dumps(settings | flags), encoding="utf-8")
        assert from_folder(tmp_path).encode("") == ids


def test_lengths_of_a_training_run_are_not_kept(small, tmp_path):
    small.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    table["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    path.write_text(json.dumps(table), encoding="utf-8")
    assert len(from_folder(tmp_path).encode("the cat sat on the mat")) > 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "not a tokenizer that can be read"),
        ("tokenizer.json", '{"version": "1.0"}', "not a tokenizer that can be read"),
        ("tokenizer_config.json", "{", "not valid JSON"),
        ("tokenizer_config.json", "[" * 100_000, "not valid JSON"),
        ("tokenizer_config.json", "[]", "holds a list"),
        ("merges.txt", "a b c", "is no pair of tokens"),
        ("vocab.json", '{"a": "b"}', "not a table of tokens and ids"),
        ("spiece.model", "garbage", "not a SentencePiece model"),
        ("config.json", "{", "not valid JSON"),  # it names the class of a SentencePiece file
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, message):
    if name in ("merges.txt", "vocab.json"):
        (tmp_path / "vocab.json").write_text('{"a": 0}', encoding="utf-8")
        (tmp_path / "merges.txt").write_text("", encoding="utf-8")
    (tmp_path / "spiece.model").write_bytes((DATA / "unigram.model").read_bytes())
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message) as caught:
        from_folder(tmp_path)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_cut_sentencepiece_models_are_named(tmp_path):
    whole = (DATA / "unigram.model").read_bytes()
    for sixteenth in range(16):
        path = tmp_path / "cut.model"
        path.write_bytes(whole[: len(whole) * sixteenth // 16])
        with pytest.raises(CheckpointError, match=r"cut\.model"):
            read_model(path)
            raise CheckpointError("cut.model was read")  # a cut between two pieces leaves a smaller vocabulary


def test_a_folder_without_a_tokenizer_gives_none(tmp_path):
    assert from_folder(tmp_path) is None


def test_ids_and_tokens_out_of_range(small):
    assert small.decode([10**6]) == ""
    assert small.id_of("no such token") is None
    for bad in (-1, small.vocab_size, 10**9):
        with pytest.raises(InputError, match="is no token id"):
            small.token(bad)
    with pytest.raises(InputError, match="ids count from 0"):
        small.decode([1, -3])
    with pytest.raises(InputError, match="valid Unicode"):
        small.encode("\ud800")
    with pytest.raises(InputError, match="max_length is 0"):
        from_gguf(bpe_values(small, add_bos_token=True), "x").encode("a", max_length=0)


def test_special_text_in_a_users_text(small):
    assert small.encode("a<|user|>b").count(1) == 1
    literal = small.encode("a<|user|>b", special=False)
    assert 1 not in literal
    assert small.decode(literal) == "a<|user|>b"


def test_many_texts_at_once(small):
    assert small.encode_batch(CORPUS) == [small.encode(text) for text in CORPUS]


def test_training_is_repeatable_and_merges_what_is_frequent():
    first, second = train(CORPUS, 300), train(CORPUS, 300)
    assert first.backend.to_str() == second.backend.to_str()
    assert first.vocab_size <= 300
    assert first.special == {"eos": 0}
    assert first.encode(" the") == [first.id_of("Ġthe")]
    with pytest.raises(InputError, match="256 bytes and 1 special tokens need 257"):
        train(CORPUS, 256)


def test_a_token_with_two_ids_is_refused():
    with pytest.raises(CheckpointError, match="'b' has two ids, 1 and 3"):
        build.vocabulary(["a", "b", "c", "b"], "here")
