"""Beams: exhaustive where they are many, equal to the library that defined their rules, the same however read."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.generation import Reason, Run, generate
from cutaway.generation.beam import Beam, BeamSearch, Group
from cutaway.generation.stopping import Limit, Row
from tests.conformance.models import drawn, logits_alone, plain, translator

PROMPTS = [[3, 1, 4], [2, 6, 5, 3, 5], [9]]


def score(model, source: list[int], start: int, ids: tuple[int, ...], length_penalty: float) -> float:
    """Sum of log-probabilities over length^penalty."""
    total = 0.0
    for place, token in enumerate(ids):
        total += float(logits_alone(model, [start, *ids[:place]], 1, source).log_softmax(0)[token])
    return total / len(ids) ** length_penalty


@pytest.mark.parametrize("length_penalty", [1.0, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.0, 2.0, -1.0))])
def test_many_beams_find_the_best_of_all_sequences(length_penalty):
    """An encoder-decoder with 5 words, at most 4 of them: every sequence is tried by hand."""
    model, stop, limit = drawn(translator(vocab_size=5), seed=3), 1, 4
    for source in ([2, 3], [4, 0, 2]):
        every = [
            ids for n in range(1, limit + 1) for ids in itertools.product(range(5), repeat=n)
            if stop not in ids[:-1] and (n == limit or ids[-1] == stop)
        ]  # fmt: skip
        best = max(every, key=lambda ids: score(model, source, 2, ids, length_penalty))
        options = spec.Generation(
            max_tokens=limit, start_id=2, stop_ids=(stop,), n_beams=400, length_penalty=length_penalty
        )
        result = generate(model, [source], options, Run(logprobs=True))
        assert tuple(result.ids[0]) == best
        total = sum(result.logprobs[0]) / len(best) ** length_penalty
        assert total == pytest.approx(score(model, source, 2, best, length_penalty), abs=1e-10)


def test_beams_score_at_least_what_greedy_does():
    model = drawn(plain())
    greedy = generate(model, PROMPTS, spec.Generation(max_tokens=10), Run(logprobs=True))
    beams = generate(model, PROMPTS, spec.Generation(max_tokens=10, n_beams=5), Run(logprobs=True))
    assert all(sum(b) > sum(g) - 1e-9 for b, g in zip(beams.logprobs, greedy.logprobs, strict=True))
    assert beams.ids != greedy.ids


@pytest.mark.parametrize("make", [plain, translator])
def test_batched_cached_and_chunked_beams_equal_single_recomputed_ones(make):
    model = drawn(make())
    options = spec.Generation(max_tokens=9, n_beams=3, start_id=2, repetition_penalty=1.2)
    free = generate(model, PROMPTS, options).ids
    options = options.replace(stop_ids=(free[0][2], free[1][5]), length_penalty=-1.0)
    alone = [generate(model, [prompt], options, Run(cache=None)).ids[0] for prompt in PROMPTS]
    assert any(len(row) < 9 for row in alone)
    for run in (Run(), Run(cache="fixed"), Run(chunk=2)):
        assert generate(model, PROMPTS, options, run).ids == alone


def test_beams_turn_a_ring_and_a_longrope_cache():
    scaling = spec.LongRopeScaling(
        short_factors=(1.0, 1.5), long_factors=(3.0, 9.0), original_length=8, factor=4.0
    )  # fmt: skip
    for attention in ({"mask": spec.SlidingMask(window=3)}, {"positions": spec.RoPE(scaling=scaling)}):
        model, options = drawn(plain(**attention)), spec.Generation(max_tokens=9, n_beams=3)
        alone = [generate(model, [prompt], options, Run(cache=None)).ids[0] for prompt in PROMPTS]
        assert generate(model, PROMPTS, options, Run(cache="ring")).ids == alone


def test_more_beams_than_words():
    model = drawn(plain(vocab_size=4))
    result = generate(model, [[1, 2]], spec.Generation(max_tokens=3, n_beams=7, stop_ids=(0,)))
    assert 1 <= len(result.ids[0]) <= 3


def test_early_stopping_ends_with_the_first_complete_ones():
    model = drawn(plain())
    options = spec.Generation(max_tokens=30, n_beams=2, stop_ids=(3, 4, 5, 6), length_penalty=3.0)
    early = generate(model, PROMPTS, options.replace(early_stopping=True)).ids
    late = generate(model, PROMPTS, options).ids
    assert all(len(e) <= len(row) for e, row in zip(early, late, strict=True)) and early != late


def test_a_beam_ends_at_the_context():
    model = drawn(plain(context_length=8))
    result = generate(model, PROMPTS, spec.Generation(n_beams=2))
    assert [len(ids) for ids in result.ids] == [5, 3, 7] and result.reasons == [Reason("context", 8)] * 3


def test_only_the_best_n_may_be_complete_and_the_next_ones_go_on():
    group = Group(Row(0, Limit(9, Reason("limit", 9)), spec.Generation()), lambda ids: ids[-1] == 0)
    candidates = [Beam([5, token], [], score) for token, score in ((0, -1.0), (3, -2.0), (0, -3.0), (4, -4.0))]
    group.grow(candidates, spec.Generation(n_beams=2, length_penalty=1.0))
    assert [(beam.ids, beam.score) for beam in group.complete] == [([5, 0], -0.5)]
    assert [beam.ids for beam in group.running] == [[5, 3], [5, 4]] and not group.done


def test_where_few_go_on_the_places_of_the_others_are_never_chosen():
    group = Group(Row(0, Limit(9, Reason("limit", 9)), spec.Generation()), lambda ids: ids[-1] == 0)
    candidates = [Beam([5, token], [], score) for token, score in ((0, -1.0), (0, -2.0), (3, -3.0), (0, -4.0))]
    group.grow(candidates, spec.Generation(n_beams=2, length_penalty=0.0))
    assert [(beam.ids, beam.score) for beam in group.complete] == [([5, 0], -1.0), ([5, 0], -2.0)]
    assert [beam.score for beam in group.running] == [-3.0, -math.inf] and group.done


def test_so_many_are_looked_at_that_n_go_on_past_every_stop():
    options = spec.Generation(n_beams=2, stop_ids=(0, 1, 2))
    group = Group(Row(0, Limit(9, Reason("limit", 9)), options), lambda ids: ids[-1] < 3)
    logits = torch.tensor([[5.0, 4.9, 4.8, 4.7, 4.6, 0.0]])
    reader = SimpleNamespace(start=lambda: logits, rows=[[9]], keep=lambda sources, same_memory: None)
    BeamSearch(reader, options, [group]).step()
    assert [beam.ids for beam in group.running] == [[3], [4]]


@pytest.mark.parametrize(("score", "done"), [(-2.9, False), (-3.0, True), (-3.1, True)])
def test_a_prompt_is_done_once_none_that_goes_on_is_better(score, done):
    group = Group(Row(0, Limit(9, Reason("limit", 9)), spec.Generation()), lambda ids: ids[-1] == 0)
    candidates = [Beam([5, token], [], value) for token, value in ((0, -1.0), (0, -3.0), (3, score), (4, -4.0))]
    group.grow(candidates, spec.Generation(n_beams=2, length_penalty=0.0))
    assert group.done == done


SETTINGS = [
    {},
    {"n_beams": 2, "length_penalty": 0.0},
    {"n_beams": 5, "length_penalty": 2.0},
    {"n_beams": 4, "length_penalty": -0.5},
    {"early_stopping": True},
    {"n_beams": 3, "stop_ids": (1, 5, 7, 9)},
    {"n_beams": 3, "stop_ids": (1, 5, 7, 9), "early_stopping": True, "length_penalty": 0.6},
    {"repetition_penalty": 1.4},
    {"stop_ids": ()},
    {"end_forced_id": 6},
    {"suppressed_ids": (3, 10)},
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_beams_are_those_of_transformers(number, tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=19, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    options = spec.Generation(**({"n_beams": 4, "stop_ids": (1, 5), "max_tokens": 14} | SETTINGS[number]))
    rng, n_early = np.random.default_rng(number), 0
    for seed in range(6):
        torch.manual_seed(seed)
        theirs = transformers.LlamaForCausalLM(config).eval()
        for parameter in theirs.parameters():
            parameter.data.mul_(12)
        theirs.save_pretrained(tmp_path)
        ours = cutaway.load(tmp_path, torch.float32).model
        prompts = [rng.integers(0, 19, size=n).tolist() for n in (4, 4, 4)]
        wanted = theirs.generate(
            torch.tensor(prompts), attention_mask=torch.ones(3, 4, dtype=torch.long), do_sample=False,
            max_new_tokens=14, min_length=0, num_beams=options.n_beams, length_penalty=options.length_penalty,
            early_stopping=options.early_stopping, repetition_penalty=options.repetition_penalty,
            eos_token_id=list(options.stop_ids) or None, pad_token_id=2,
            forced_eos_token_id=None if options.end_forced_id == "none" else options.end_forced_id,
            suppress_tokens=list(options.suppressed_ids) or None,
        )[:, 4:].tolist()  # fmt: skip
        got = generate(ours, prompts, options).ids
        assert got == [_until(row, options.stop_ids) for row in wanted]
        n_early += sum(len(row) < 14 for row in got)
    assert n_early or not options.stop_ids


def _until(row: list[int], stops: tuple[int, ...]) -> list[int]:
    """Up to the first stop id: what follows it is padding."""
    end = next((place for place, token in enumerate(row) if token in stops), len(row))
    return row[: end + 1]
