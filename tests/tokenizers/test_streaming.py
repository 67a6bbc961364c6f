from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.tokenizers import StopStrings, Stream, Tokenizer, train
from cutaway.tokenizers.sentencepiece import read_model

DATA = Path(__file__).parent / "data"
FAMILY = "👨‍👩‍👧‍👦 日本語"
TEXTS = [FAMILY, "plain words, 1234", "  spaces   ", "naïve café\n\n\ttabs", "Привет 🙂🙃 мир", ""]


@pytest.fixture(scope="session")
def byte_level():
    return train(TEXTS * 3, 300)


@pytest.fixture(scope="session")
def pieces():
    """A SentencePiece BPE with byte fallback, whose texts get a space in front."""
    return Tokenizer(read_model(DATA / "bpe.model").tokenizer("bpe"), {"bos": 1, "eos": 2})


@pytest.fixture(scope="session")
def unigram():
    return Tokenizer(read_model(DATA / "unigram.model").tokenizer("unigram"), {"eos": 1})


def streamed(stream: Stream, ids: list[int]) -> list[str]:
    return [*(stream.push(i) for i in ids), stream.flush()]


def samples(tokenizer: Tokenizer) -> list[list[int]]:
    """A hundred sequences: of texts, and of tokens at random that make whole characters."""
    rng = random.Random(0)
    texts = json.loads((DATA / "sentencepiece.json").read_text(encoding="utf-8"))["texts"]
    found = [tokenizer.encode(text, add_special_tokens=False) for text in texts + TEXTS]
    while len(found) < 100:
        words = [rng.choice([" ", "", "日", "é", "🙂", "be ", "the"]) for _ in range(rng.randint(1, 12))]
        found.append(tokenizer.encode("".join(words), add_special_tokens=False))
    return found


@pytest.mark.parametrize("name", ["byte_level", "pieces", "unigram"])
def test_trap_36_prefix_space(name, request):
    """Pieces streamed after any part of a sequence are what the whole adds to it."""
    tokenizer = request.getfixturevalue(name)
    for ids in samples(tokenizer):
        whole = tokenizer.decode(ids)
        for cut in range(len(ids) + 1):
            stream = Stream(tokenizer)
            first = "".join(stream.push(i) for i in ids[:cut])
            second = "".join([*(stream.push(i) for i in ids[cut:]), stream.flush()])
            assert first + second == whole
            head = tokenizer.decode(ids[:cut])
            if whole.startswith(head):  # else the cut is inside of a character
                assert head + "".join(streamed(Stream(tokenizer, ids[:cut]), ids[cut:])) == whole


def test_trap_36_a_space_stays_between_a_prompt_and_its_continuation(pieces):
    ids = pieces.encode("he is the")
    assert pieces.decode(ids[-1:]) == "the"
    assert "".join(streamed(Stream(pieces, ids[:-1]), ids[-1:])) == " the"


@pytest.mark.parametrize("name", ["byte_level", "pieces"])
def test_trap_38_half_characters(name, request):
    tokenizer = request.getfixturevalue(name)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        parts = streamed(Stream(tokenizer), ids)
        assert "".join(parts) == tokenizer.decode(ids) == text
        assert not any("\ufffd" in part for part in parts)


def test_trap_38_characters_come_as_soon_as_they_are_whole(byte_level):
    ids = [byte_level.id_of(token) for token in ("a", "æ", "Ĺ", "¥", "b")]  # a, the three bytes of 日, b
    assert None not in ids
    stream = Stream(byte_level)
    assert [stream.push(i) for i in ids] == ["a", "", "", "日", "b"]


def test_bytes_that_become_no_character_are_shown_at_last(byte_level):
    lone = byte_level.id_of("æ")
    a = byte_level.id_of("a")
    stream = Stream(byte_level)
    assert [stream.push(i) for i in (a, lone, a)] == ["a", "", "\ufffda"]
    stream = Stream(byte_level)
    assert stream.push(lone) == ""
    assert stream.flush() == "\ufffd"
    assert "".join(streamed(Stream(byte_level), [lone] * 300)) == "\ufffd" * 300


@given(data=st.lists(st.integers(0, 255), max_size=40))
def test_any_bytes_stream_to_what_they_decode_to(byte_level, data):
    alphabet = sorted(i for i in range(byte_level.vocab_size) if len(byte_level.token(i)) == 1)
    ids = [alphabet[b] for b in data]
    assert "".join(streamed(Stream(byte_level), ids)) == byte_level.decode(ids)


def test_special_tokens_can_be_left_out(pieces):
    ids = [1, *pieces.encode("Hello world"), 2]
    assert "".join(streamed(Stream(pieces, skip_special=True), ids)) == "Hello world"
    assert "".join(streamed(Stream(pieces), ids)).endswith("world</s>")


def test_long_streams_cost_the_same_a_token(byte_level):
    import time

    ids = byte_level.encode("plain words, 1234 " * 2000)
    stream = Stream(byte_level)
    start = time.perf_counter()
    for i in ids:
        stream.push(i)
    assert (time.perf_counter() - start) / len(ids) < 2e-4


def stopped(stops: list[str], parts: list[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    return "".join([*(matcher.push(part) for part in parts), matcher.flush()]), matcher.found


def test_trap_39_stop_string_across_tokens():
    assert stopped(["Pari"], ["The capital is", " Par", "is, of course"]) == ("The capital is ", "Pari")
    assert stopped(["Pari"], list("The capital is Paris")) == ("The capital is ", "Pari")
    assert stopped(["\n\nUser:"], ["one\n", "\nUs", "e\n\nUser", ": two"]) == ("one\n\nUse", "\n\nUser:")


def test_trap_39_nothing_of_a_stop_string_is_shown_and_nothing_else_is_kept():
    matcher = StopStrings(["<end>", "<stop>"])
    assert matcher.push("a<") == "a"
    assert matcher.push("b<st") == "<b"
    assert matcher.push("op") == ""
    assert matcher.push(">c") == ""
    assert matcher.found == "<stop>"
    assert matcher.push("d") == matcher.flush() == ""


def test_a_start_that_comes_to_nothing_is_given_out_at_the_end():
    assert stopped(["abc"], ["xab"]) == ("xab", None)


@given(
    text=st.text("ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 20), max_size=5),
)
def test_stop_strings_do_not_depend_on_the_pieces(text, stops, cuts):
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    # by definition: the shortest beginning of the text that ends in a stop string, without the longest such one
    expected: tuple[str, str | None] = (text, None)
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            expected = (text[: end - len(longest)], longest)
            break
    assert stopped(stops, parts) == expected


def test_an_empty_stop_string_is_refused():
    with pytest.raises(InputError, match="empty"):
        StopStrings(["a", ""])
