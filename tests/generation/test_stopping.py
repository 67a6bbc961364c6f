"""Where a text ends and why; what a prompt must be."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation import Reason, Run, Stream, Token, generate, with_changes
from cutaway.generation.stopping import Limit, Row, room
from cutaway.tokenizers import streaming
from cutaway.tokenizers.tokenizer import Tokenizer
from tests.conformance.models import drawn, greedy_alone, plain, translator

ENDLESS = Limit(10**6, Reason("limit", 10**6))


def byte_tokenizer() -> Tokenizer:
    """A token for each byte, and some longer ones."""
    base = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    longer = ["ab", "bc", "abc", "Ġa", "ca"]
    vocab = {piece: i for i, piece in enumerate([*base, *longer])}
    merges = [("a", "b"), ("b", "c"), ("ab", "c"), ("Ġ", "a"), ("c", "a")]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return Tokenizer(backend, {})


TOKENIZER = byte_tokenizer()
SIZE = TOKENIZER.vocab_size


def written(ids: list[int], stops: tuple[str, ...] = (), stop_ids: tuple[int, ...] = ()) -> tuple[list[str], Row]:
    """The pieces that a row shows for ids, until it ends or they do."""
    options = spec.Generation(stop_strings=stops, stop_ids=stop_ids)
    row = Row(0, Limit(len(ids), Reason("limit", len(ids))), options, streaming.Stream(TOKENIZER))
    pieces = []
    for token in ids:
        pieces.append(row.push(token))
        if row.reason is not None:
            break
    return pieces, row


text_ids = st.lists(
    st.sampled_from(TOKENIZER.encode("abc aé日") + list(range(SIZE - 5, SIZE))), min_size=1, max_size=12
)
stop_lists = st.lists(st.text("abcé日 ", min_size=1, max_size=4), max_size=3).map(tuple)


@given(ids=text_ids, stops=stop_lists)
def test_trap_39_a_text_is_cut_exactly_before_the_first_stop_string(ids, stops):
    pieces, row = written(ids, stops)
    whole = TOKENIZER.decode(ids)
    ends = [whole.find(stop) + len(stop) for stop in stops if stop in whole]
    if not ends:
        assert "".join(pieces) == whole and row.reason == Reason("limit", len(ids))
        return
    first = [stop for stop in stops if stop in whole and whole.find(stop) + len(stop) == min(ends)]
    found = max(first, key=len)
    assert "".join(pieces) == whole[: min(ends) - len(found)]
    assert row.reason == Reason("stop_string", found)
    assert found in TOKENIZER.decode(row.ids) and len(row.ids) <= len(ids)


@given(ids=text_ids)
def test_pieces_are_whole_characters(ids):
    pieces, _ = written(ids)
    assert "".join(pieces) == TOKENIZER.decode(ids)


def test_a_held_back_beginning_is_given_out_at_the_end():
    ids = TOKENIZER.encode("c ab")
    assert "".join(written(ids, ("abx",))[0]) == "c ab"
    pieces, row = written([*ids, 7], ("abx",), stop_ids=(7,))
    assert "".join(pieces) == "c ab" and row.reason == Reason("stop_id", 7) and row.ids == [*ids, 7]


def test_trap_39_streamed_through_a_model():
    """A stop string across two tokens of a model's own text, in a batch, with and without beams."""
    model = drawn(plain(vocab_size=SIZE))
    prompts = [[40, 41], [70, 71, 72]]
    run = Run(tokenizer=TOKENIZER)
    for n_beams in (1, 2):
        options = spec.Generation(max_tokens=16, n_beams=n_beams)
        free = generate(model, prompts, options, run)
        whole = free.texts[0]
        stop = next(whole[i : i + 2] for i in range(3, len(whole)) if "�" not in whole[i : i + 2])
        cut = generate(model, prompts, options.replace(stop_strings=(stop,)), run)
        if n_beams == 1:
            assert cut.texts[0] == whole[: whole.index(stop)]
            assert cut.ids[0] == free.ids[0][: len(cut.ids[0])]
        for text, reason in zip(cut.texts, cut.reasons, strict=True):
            assert stop not in text
            assert reason == Reason("stop_string", stop) or reason.kind == "limit"
        pieces = ["", ""]
        for token in Stream(model, prompts, options.replace(stop_strings=(stop,)), run):
            pieces[token.row] += token.text
        assert pieces == cut.texts


def test_texts_go_on_from_the_prompt():
    model = drawn(plain(vocab_size=SIZE))
    prompt = TOKENIZER.encode("日本")
    result = generate(model, [prompt], spec.Generation(max_tokens=9), Run(tokenizer=TOKENIZER))
    assert result.texts[0] == TOKENIZER.decode(prompt + result.ids[0])[2:]
    half = prompt[:-1]  # the last character lacks a byte, and the model writes the one that completes it
    row = Row(0, ENDLESS, spec.Generation(), streaming.Stream(TOKENIZER, half))
    assert row.push(prompt[-1]) == "本"


def test_trap_40_any_of_several_stop_ids_ends_a_row_and_is_its_last_id():
    model = drawn(plain())
    prompts = [[3, 1], [4, 5, 6], [7]]
    free = generate(model, prompts, spec.Generation(max_tokens=12)).ids
    stops = (free[0][3], free[1][5])
    result = generate(model, prompts, spec.Generation(max_tokens=12, stop_ids=stops))
    for ids, reason, whole in zip(result.ids, result.reasons, free, strict=True):
        end = next((place for place, token in enumerate(whole) if token in stops), None)
        assert ids == (whole if end is None else whole[: end + 1])
        assert reason == (Reason("limit", 12) if end is None else Reason("stop_id", whole[end]))


def test_reasons_read_as_sentences():
    assert str(Reason("stop_id", 2)) == "the stop token 2 came"
    assert str(Reason("stop_string", "\n\n")) == "the stop string '\\n\\n' came"
    assert str(Reason("limit", 20)) == "the limit of new tokens, 20, is reached"
    assert str(Reason("context", 48)) == "the model's context of 48 tokens is full"


def test_trap_10_a_row_ends_at_the_last_learned_position():
    table = spec.TokenEmbedding(positions=spec.Learned(n_positions=48))
    model = drawn(plain(context_length=48, positions=spec.NoPositions()).replace(embedding=table))
    prompt = [1 + n % 22 for n in range(40)]
    result = generate(model, [prompt], spec.Generation(max_tokens=20))
    assert result.ids[0] == greedy_alone(model, prompt, 8)
    assert str(result.reasons[0]) == "the model's context of 48 tokens is full"
    exactly = generate(model, [prompt], spec.Generation(max_tokens=8))
    assert exactly.reasons[0] == Reason("limit", 8)
    for length in (48, 60):
        with pytest.raises(InputError, match=f"prompt 0: {length} tokens, but the model's context is 48.*shorten"):
            generate(model, [[1] * length], spec.Generation(max_tokens=20))


def test_without_any_limit_a_number_is_asked_for():
    record = plain(context_length="unlimited")
    with pytest.raises(InputError, match="max_tokens: .* unlimited"):
        generate(drawn(record), [1], spec.Generation())
    assert room(1000, spec.Generation(max_tokens=5), "unlimited") == Limit(5, Reason("limit", 5))


def test_forced_ids_begin_and_end_a_row():
    model = drawn(translator())
    free = [greedy_alone(model, [2, 9, 4], 4, source) for source in ([5, 6], [7])]
    end = next(token for token in range(23) if token not in {9, *free[0], *free[1]})
    options = spec.Generation(max_tokens=6, start_id=2, forced_ids=(9, 4), end_forced_id=end, suppressed_ids=(9,))
    for n_beams in (1, 3):
        ids = generate(model, [[5, 6], [7]], options.replace(n_beams=n_beams)).ids
        assert [row[:2] for row in ids] == [[9, 4]] * 2 and [row[-1] for row in ids] == [end, end]
        assert 9 not in ids[0][2:]
        if n_beams == 1 and 9 not in free[0]:
            assert ids[0] == [9, 4, *free[0][:3], end]


def test_events_tell_row_id_and_reason():
    model = drawn(plain())
    stream = Stream(model, [[3, 1], [4]], spec.Generation(max_tokens=2), Run(logprobs=True))
    events = list(stream)
    assert [(event.row, event.reason is not None) for event in events] == [(0, False), (1, False), (0, True), (1, True)]
    assert all(isinstance(event, Token) and event.logprob < 0 for event in events)
    timing = stream.timing
    assert (timing.n_prompt, timing.n_new, timing.n_decoded) == (3, 4, 2)
    assert timing.prefill > 0 and timing.tokens_per_second == pytest.approx(2 / timing.decode)
    assert list(stream) == events  # a second run through begins anew


@pytest.mark.parametrize(
    "prompts", [[3, 1], [[3, 1]], torch.tensor([3, 1]), torch.tensor([[3, 1]]), np.array([[3, 1]]), (3, 1)]
)
def test_prompts_of_any_form(prompts):
    model = drawn(plain())
    assert generate(model, prompts, spec.Generation(max_tokens=3)).ids == [greedy_alone(model, [3, 1], 3)]


def test_an_empty_batch_gives_an_empty_result():
    result = generate(drawn(plain()), torch.empty(0, 4, dtype=torch.long), spec.Generation(max_tokens=3))
    assert result.ids == [] and result.reasons == []


REFUSED = {
    "prompt 0: no tokens": {"prompts": []},
    "prompt 1: no tokens": {"prompts": [[1], []]},
    "prompt 0: 23 is not in the vocabulary of 23": {"prompts": [[1, 23]]},
    "prompt 0: -1 is not in the vocabulary": {"prompts": [-1]},
    "prompt: 'hello' is no list of ids; encode": {"prompts": "hello"},
    "prompt 0: 'hello' is no list of ids": {"prompts": ["hello"]},
    r"prompt 0: \[1.5\] is no list of ids": {"prompts": [[1.5]]},
    "prompt 2: no tokens": {"prompts": torch.tensor([[1]] * 3), "mask": torch.tensor([[1], [1], [0]])},
    r"mask: shape \(1, 2\), but the prompts have \(1, 3\)": {"prompts": [[1, 2, 3]], "mask": torch.ones(1, 2)},
    "seeds: 3 of them for 1 prompts": {"run": Run(seeds=[1, 2, 3])},
    "chunk: 0 tokens": {"run": Run(chunk=0)},
    "stop_strings: .* tokenizer": {"options": {"stop_strings": ("a",)}},
    "n_beams: beams are not sampled": {"options": {"n_beams": 2, "temperature": 1.0}},
    "suppressed_ids: 23 is not in the vocabulary": {"options": {"suppressed_ids": (23,)}},
    "end_forced_id: 99 is not": {"options": {"end_forced_id": 99}},
    "a stop string is empty": {"options": {"stop_strings": ("",)}, "run": Run(tokenizer=TOKENIZER)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_by_name_before_any_work(message):
    given = {"prompts": [1], "options": {}, "run": Run(), "mask": None} | REFUSED[message]
    options = spec.Generation(max_tokens=3, **given["options"])
    with pytest.raises(InputError, match=message):
        Stream(drawn(plain()), given["prompts"], options, given["run"], given["mask"])


def test_models_that_write_nothing_are_refused():
    encoder = spec.Encoder(**{**dict(plain()), "kind": "encoder", "head": spec.MaskedHead()})
    with pytest.raises(InputError, match="masked head gives no next token"):
        generate(drawn(encoder), [1], spec.Generation(max_tokens=1))
    with pytest.raises(InputError, match="classes head gives no next token"):
        generate(drawn(plain().replace(head=spec.ClassHead(n_classes=2))), [1], spec.Generation(max_tokens=1))
    with pytest.raises(InputError, match="start_id"):
        generate(drawn(translator()), [1], spec.Generation(max_tokens=1))
    with pytest.raises(InputError, match="prompt 0: 41 tokens, but the model's context is 40"):
        generate(drawn(translator()), [1] * 41, spec.Generation(max_tokens=1, start_id=2))


def test_options_over_defaults():
    defaults = spec.Generation(temperature=0.7, stop_ids=(2,))
    assert with_changes(defaults, {"stop_strings": ["a"], "top_k": 5}) == defaults.replace(stop_strings=("a",), top_k=5)
    with pytest.raises(InputError, match="temperature"):
        with_changes(defaults, {"temperature": -1.0})
    with pytest.raises(InputError, match="temperature"):
        with_changes(defaults, {"temprature": 1.0})


def test_the_models_own_options_are_the_default():
    record = plain().replace(generation=spec.Generation(max_tokens=2))
    assert len(generate(drawn(record), [1]).ids[0]) == 2


@pytest.mark.parametrize("seeds", [-1, 2**64, [3, 2**70]])
def test_a_seed_outside_its_range_is_refused(seeds):
    prompts = [[1], [2]] if isinstance(seeds, list) else [[1]]
    with pytest.raises(InputError, match="seed: .*; give a whole number from 0 to 2"):
        Stream(drawn(plain()), prompts, spec.Generation(max_tokens=1), Run(seeds=seeds))
