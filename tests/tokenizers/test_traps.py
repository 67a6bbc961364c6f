"""Traps of the tokenizers of encoders and encoder-decoders: numbering, spaces, what stands around a text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cutaway.checkpoints.pull import pull
from cutaway.errors import CheckpointError
from cutaway.tokenizers.load import from_folder
from cutaway.tokenizers.sentencepiece import read_model
from cutaway.tokenizers.streaming import Stream
from cutaway.tokenizers.tokenizer import Tokenizer
from cutaway.tokenizers.train import train

DATA = Path(__file__).parent / "data"
TEXTS = json.loads((DATA / "sentencepiece.json").read_text(encoding="utf-8"))["texts"]
PIECES = read_model(DATA / "unigram.model").pieces.tokens


@pytest.fixture(scope="module")
def minilm():
    return from_folder(pull("minilm"))


def folder(path, file, vocab=None, **settings):
    """A folder with a SentencePiece file, and what its settings say."""
    shutil.copy(DATA / "unigram.model", path / file)
    if vocab is not None:
        (path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(vocab)}), encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return path


def plain(text):
    """The ids of a text by the file alone."""
    tokenizer = Tokenizer(read_model(DATA / "unigram.model").tokenizer("plain"), {})
    return tokenizer.encode(text, special=False, add_special_tokens=False)


# 36: prefix space


def test_trap_36_word_pieces_stream_to_what_they_decode_to(minilm):
    for text in ("it's a test: one, two.", "unaffable words ( again )", "don't!", *TEXTS):
        ids = minilm.encode(text, add_special_tokens=False)
        stream = Stream(minilm)
        assert "".join([*(stream.push(i) for i in ids), stream.flush()]) == minilm.decode(ids)


def test_trap_36_the_dummy_prefix_goes_at_the_very_start_alone(tmp_path):
    tokenizer = from_folder(folder(tmp_path, "spiece.model", tokenizer_class="T5Tokenizer"))
    whole = tokenizer.encode("he is the", add_special_tokens=False)
    assert tokenizer.token(whole[0]).startswith("▁")
    assert tokenizer.decode(whole) == "he is the"
    for cut in range(1, len(whole)):
        stream = Stream(tokenizer, whole[:cut])
        rest = "".join([*(stream.push(i) for i in whole[cut:]), stream.flush()])
        assert tokenizer.decode(whole[:cut]) + rest == "he is the"


# 37: special tokens, once


def test_trap_37_an_end_token_once(tmp_path):
    tokenizer = from_folder(folder(tmp_path, "spiece.model", tokenizer_class="T5Tokenizer", eos_token="</s>"))
    for text in ("he is the", "", "  two  spaces  "):
        assert tokenizer.encode(text) == [*plain(text), 1]
        assert tokenizer.encode(text, add_special_tokens=False) == plain(text)


def test_trap_37_word_pieces_stand_between_one_cls_and_one_sep(minilm):
    ids = minilm.encode("a test")
    assert (ids[0], ids[-1], ids.count(101), ids.count(102)) == (101, 102, 1, 1)
    both, types = minilm.encode_pair("a test", "of two")
    assert both == [*ids, *minilm.encode("of two")[1:]]
    assert types == [0] * len(ids) + [1] * (len(both) - len(ids))
    assert minilm.encode("a " * 50, max_length=9)[-1] == 102 and len(minilm.encode("a " * 50, max_length=9)) == 9


def test_trap_37_pairs_of_byte_level_encoders_are_parted_twice_and_of_one_type(tmp_path):
    """<s> a </s></s> b </s>, all of type 0: such models have one type, and a second would be no row of its table."""
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    words = json.loads(train(["a test of two texts"], 280, special=special).backend.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(words["vocab"]), encoding="utf-8")
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in words["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges), encoding="utf-8")
    names = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unk": "<unk>"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({f"{role}_token": t for role, t in names.items()}))
    tokenizer = from_folder(tmp_path)
    start, end = (tokenizer.special[role] for role in ("cls", "sep"))
    a, b = (tokenizer.encode(text, add_special_tokens=False) for text in ("a test", "of two"))
    assert tokenizer.encode("a test") == [start, *a, end]
    ids, types = tokenizer.encode_pair("a test", "of two")
    assert ids == [start, *a, end, end, *b, end] and set(types) == {0}


@pytest.mark.parametrize("file", ["unigram.model", "bpe.model"])
def test_trap_37_text_that_looks_like_a_special_token_is_text(file):
    tokenizer = Tokenizer(read_model(DATA / file).tokenizer(file), {})
    special = tokenizer.special_ids
    assert special and all(special & set(tokenizer.encode(f"a {tokenizer.token(i)} b")) for i in special)
    for i in special:
        assert not special & set(tokenizer.encode(f"a {tokenizer.token(i)} b", special=False))


# Word pieces


def test_trap_word_pieces_lowercase_and_lose_accents_together(minilm, tmp_path):
    assert minilm.encode("Héllo WÖRLD") == minilm.encode("hello world")
    shutil.copy(pull("minilm") / "vocab.txt", tmp_path)
    for settings, same in (
        ({}, True),
        ({"do_lower_case": True, "strip_accents": False}, False),
        ({"do_lower_case": False}, False),
        ({"do_lower_case": False, "strip_accents": True}, False),
    ):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        tokenizer = from_folder(tmp_path)
        assert (tokenizer.encode("HÉLLO") == tokenizer.encode("hello")) is same
        assert (tokenizer.encode("HELLO") == tokenizer.encode("hello")) is settings.get("do_lower_case", True)
        assert tokenizer.special["mask"] == 103


def test_trap_a_word_that_no_pieces_make_is_one_unknown(minilm):
    assert minilm.encode("🙂", add_special_tokens=False) == [100]
    assert minilm.encode("a" * 101, add_special_tokens=False) == [100]
    assert 100 not in minilm.encode("a" * 100, add_special_tokens=False)
    assert len(minilm.encode("日本", add_special_tokens=False)) == 2  # each such character is a word


def test_trap_old_folders_take_the_names_of_special_tokens_for_granted(tmp_path):
    shutil.copy(pull("minilm") / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert from_folder(tmp_path).special == {"unk": 100, "pad": 0, "cls": 101, "sep": 102, "mask": 103}


# Numbering


def test_trap_extra_ids_count_down(tmp_path):
    tokenizer = from_folder(folder(tmp_path, "spiece.model", tokenizer_class="T5Tokenizer", extra_ids=3))
    n = len(PIECES)
    assert [tokenizer.token(i) for i in range(n, n + 3)] == ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    assert tokenizer.encode("<extra_id_0>") == [n + 2, 1]


@pytest.mark.parametrize("source", ["tokenizer_class", "model_type"])
def test_trap_pieces_shifted_behind_four_of_its_own(source, tmp_path):
    if source == "tokenizer_class":
        folder(tmp_path, "sentencepiece.bpe.model", tokenizer_class="XLMRobertaTokenizerFast")
    else:
        folder(tmp_path, "sentencepiece.bpe.model")
        (tmp_path / "config.json").write_text('{"model_type": "xlm-roberta"}')
    tokenizer = from_folder(tmp_path)
    assert [tokenizer.token(i) for i in range(5)] == ["<s>", "<pad>", "</s>", "<unk>", PIECES[3]]
    assert tokenizer.encode("he is the") == [0, *(i + 1 for i in plain("he is the")), 2]
    assert tokenizer.special["mask"] == len(PIECES) + 1
    assert tokenizer.encode_pair("he", "is")[0].count(2) == 3


def test_trap_a_vocabulary_of_its_own_numbers_the_pieces(tmp_path):
    """Marian: both languages' tokens stand in vocab.json; a text becomes those of its own language alone."""
    vocab = ["</s>", "<unk>", *reversed(PIECES[3:]), "▁Haus", ">>fra<<", "<pad>"]
    tokenizer = from_folder(folder(tmp_path, "source.spm", vocab, tokenizer_class="MarianTokenizer"))
    wanted = [vocab.index(PIECES[i]) for i in plain("he is the")]
    assert tokenizer.encode("he is the") == [*wanted, 0]
    assert tokenizer.encode(">>fra<< he is the") == [vocab.index(">>fra<<"), *wanted, 0]
    haus = vocab.index("▁Haus")
    assert haus not in tokenizer.encode("Haus") and tokenizer.decode([haus, *wanted]) == "Haus he is the"


def test_trap_a_language_token_before_the_text(tmp_path):
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *PIECES[3:]]
    languages = ["__de__", "__en__"]
    path = folder(
        tmp_path,
        "sentencepiece.bpe.model",
        vocab,
        tokenizer_class="M2M100Tokenizer",
        additional_special_tokens=languages,
    )
    tokenizer = from_folder(path)
    n, body = len(vocab), [i + 1 for i in plain("he is the")]
    assert tokenizer.encode("he is the") == [n + 1, *body, 2]
    settings = json.loads((path / "tokenizer_config.json").read_text()) | {"src_lang": "de"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert from_folder(path).encode("he is the") == [n, *body, 2]


@pytest.mark.parametrize("name", ["MBart50Tokenizer", "PegasusTokenizer", "CamembertTokenizer", "NllbTokenizer"])
def test_trap_a_numbering_that_is_not_known_is_refused(name, tmp_path):
    with pytest.raises(CheckpointError, match=f"{name.removesuffix('Tokenizer').lower()} numbers its tokens otherwise"):
        from_folder(folder(tmp_path, "spiece.model", tokenizer_class=name))


@pytest.mark.parametrize(
    ("content", "message"), [('{"a": 5}', "from 0 on"), ("[]", "from 0 on"), ('{"a": 0}', "no <unk>")]
)
def test_a_damaged_vocabulary_is_named(content, message, tmp_path):
    folder(tmp_path, "source.spm", ["a"], tokenizer_class="MarianTokenizer")
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        from_folder(tmp_path)


def test_an_added_token_keeps_its_id_or_is_refused(tmp_path):
    n = len(PIECES)
    added = {str(n + 100): {"content": "<new>", "special": True}}
    folder(tmp_path, "spiece.model", tokenizer_class="T5Tokenizer", added_tokens_decoder=added)
    assert from_folder(tmp_path).id_of("<new>") == n + 100
    added = {str(n + 500): {"content": "<new>", "special": True}}
    folder(tmp_path, "spiece.model", tokenizer_class="T5Tokenizer", added_tokens_decoder=added)
    with pytest.raises(CheckpointError, match="<new>.* cannot have the id"):
        from_folder(tmp_path)
