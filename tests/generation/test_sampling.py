"""From logits to tokens: equal to the NumPy definition, ties settled, seeds kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation import Run, generate
from cutaway.generation.sampling import (
    SPARE,
    Sampler,
    argmax,
    distribution,
    draw,
    likeliest,
    penalise,
    repeating,
    seen_ids,
)  # fmt: skip
from cutaway.reference import sampling as reference
from tests.conformance.models import drawn, logits_alone, plain

CPU = torch.device("cpu")
few = st.sampled_from([-3.0, -0.5, 0.0, 0.5, 0.50001, 2.0, 8.0])  # so that ties are common


def rows(low: int = 2, high: int = 9) -> st.SearchStrategy[np.ndarray]:
    any_float = st.floats(-50, 50)
    return st.integers(low, high).flatmap(lambda n: arrays(np.float64, (2, n), elements=st.one_of(few, any_float)))


def spread(logits: np.ndarray, options: spec.Generation) -> np.ndarray:
    """`distribution` with the tokens that it left out at 0."""
    shares, ids = distribution(torch.from_numpy(logits), options)
    out = torch.zeros(logits.shape, dtype=shares.dtype)
    return (shares if ids is None else out.scatter(1, ids, shares)).numpy()


@example(logits=np.array([[1.0, -1e-196, 0.0], [0.0, 0.0, 0.0]]), temperature=1.0, top_k=2, top_p=0.79, min_p=0.05)
@example(logits=np.array([[2.0, -1e-196, 0.0], [0.0, 0.0, 0.0]]), temperature=1.0, top_k=3, top_p=0.79, min_p=0.05)
@given(
    logits=rows(), temperature=st.sampled_from([1e-300, 1e-6, 0.3, 1.0, 7.0]), top_k=st.integers(0, 10),
    top_p=st.sampled_from([0.0, 0.2, 0.79, 0.9, 0.999, 1.0]), min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)  # fmt: skip
def test_distribution_is_the_definition(logits, temperature, top_k, top_p, min_p):
    values = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    got = spread(logits, spec.Generation(**values))
    for row, one in zip(logits, got, strict=True):
        wanted = reference.distribution(row, reference.Sampling(**values))
        if not ((wanted > 0) == (one > 0)).all():  # a border within rounding of p: either side is right
            assert _at_the_border(row, values)
            continue
        assert np.abs(one - wanted).max() < 1e-12


def _at_the_border(row: np.ndarray, values: dict) -> bool:
    scaled = (reference.keep_top_k(row, values["top_k"]) - row.max()) / values["temperature"]
    shares = np.sort(reference.softmax(scaled))[::-1]
    near_p = np.abs(np.cumsum(shares) - values["top_p"]).min() < 1e-12
    kept = reference.softmax(reference.keep_top_p(scaled, values["top_p"]))
    return near_p or np.abs(kept / kept.max() - values["min_p"]).min() < 1e-12


@given(logits=rows(), seen=st.lists(st.integers(0, 1), min_size=1), r=st.sampled_from([0.5, 1.3]), p=st.floats(-2, 2))
def test_penalties_are_the_definition(logits, seen, r, p):
    got = penalise(torch.from_numpy(logits), seen_ids([seen, [0]], CPU), r, p).numpy()
    assert np.allclose(got[0], reference.penalise(logits[0], seen, r, p), rtol=0, atol=1e-13)
    assert np.allclose(got[1], reference.penalise(logits[1], [0], r, p), rtol=0, atol=1e-13)


@given(logits=rows(), uniform=st.floats(0, 1, exclude_max=True))
def test_draw_is_the_definition(logits, uniform):
    shares = torch.from_numpy(np.stack([reference.softmax(row) for row in logits]))
    shares[:, -1] = 0.0  # a draw must never land on it
    got = draw(shares, torch.tensor([uniform, 1 - 2**-53], dtype=torch.float64)).tolist()
    wanted = [reference.draw(shares[0].numpy(), uniform), reference.draw(shares[1].numpy(), 1 - 2**-53)]
    assert got == wanted and shares.shape[1] - 1 not in got


@given(rows(1, 6))
def test_argmax_takes_the_lowest_id_of_equal_ones(logits):
    assert argmax(torch.from_numpy(logits)).tolist() == [int(np.flatnonzero(row == row.max())[0]) for row in logits]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_likeliest_settles_ties_at_the_border_whatever_the_dtype(dtype):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 40 + 3 * SPARE, generator=generator).mul(2).round().to(dtype)  # a handful of values
    fine = torch.randn(3, 40 + 3 * SPARE, generator=generator).to(dtype)
    for table in (values, fine, torch.zeros_like(fine)):
        for n in (1, 7, 40, table.shape[1]):
            order = np.argsort(-table.double().numpy(), axis=1, kind="stable")[:, :n]
            got = likeliest(table, n)
            assert (got[1].numpy() == order).all()
            assert torch.equal(got[0], table.gather(1, got[1]))


def test_a_large_vocabulary_gives_the_same_as_a_sorted_one():
    generator = torch.Generator().manual_seed(1)
    for sharpness in (0.1, 2.0, 6.0):  # the mass in more than 2048 tokens, in some hundreds, in a few
        logits = (sharpness * torch.randn(2, 6000, generator=generator, dtype=torch.float64)).numpy()
        for values in ({"top_p": 0.9}, {"top_k": 50}, {"top_k": 900, "top_p": 0.5, "min_p": 0.1}):
            got = spread(logits, spec.Generation(temperature=0.8, **values))
            for row, one in zip(logits, got, strict=True):
                wanted = reference.distribution(row, reference.Sampling(temperature=0.8, **values))
                assert np.abs(one - wanted).max() < 1e-12


def test_draws_follow_the_distribution():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, -9.0]]).expand(2000, -1)
    options = spec.Generation(temperature=1.0, top_k=4)
    sampler = Sampler(options, [[0]] * 2000, list(range(2000)), logits)
    counts = torch.bincount(sampler.choose(logits), minlength=5) / 2000
    assert (counts - torch.from_numpy(spread(logits[:1].numpy(), options))[0]).abs().max() < 0.04
    assert counts[4] == 0


def test_suppressed_ids_never_come():
    logits = torch.tensor([[9.0, 8.0, 1.0]])
    for temperature in (0.0, 1.0):
        options = spec.Generation(temperature=temperature, suppressed_ids=(0, 1))
        assert Sampler(options, [[0]], [3], logits).choose(logits).tolist() == [2]
    assert logits.tolist() == [[9.0, 8.0, 1.0]]  # the caller's logits are left as they are


def test_nan_is_named_not_drawn():
    logits = torch.tensor([[1.0, float("nan"), 2.0], [1.0, 2.0, 0.0]])
    for values in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2}, {"temperature": 1.0, "top_p": 0.5}):
        options = spec.Generation(**values)
        assert Sampler(options, [[0]] * 2, [1, 2], logits).choose(logits)[0] == -1, values
    model = drawn(plain())
    model.final_norm.weight.data[0] = float("nan")
    for options in (spec.Generation(max_tokens=2), spec.Generation(max_tokens=2, n_beams=2)):
        with pytest.raises(InputError, match="prompt 0: the model's logits are NaN"):
            generate(model, [1, 2], options)


OPTIONS = spec.Generation(max_tokens=12, temperature=1.5, top_p=0.95, repetition_penalty=1.1)
PROMPTS = [[3, 1, 4], [9], [2, 6, 5, 3, 5]]


def test_a_seed_gives_one_text_alone_in_a_batch_and_beside_rows_that_end():
    model = drawn(plain())
    alone = [generate(model, [row], OPTIONS, Run(seeds=seed)).ids[0] for row, seed in zip(PROMPTS, (7, 8, 9))]
    assert generate(model, PROMPTS, OPTIONS, Run(seeds=[7, 8, 9])).ids == alone
    stops = (alone[0][2],)
    cut = generate(model, PROMPTS, OPTIONS.replace(stop_ids=stops), Run(seeds=[7, 8, 9])).ids
    for short, whole in zip(cut, alone, strict=True):
        assert short == whole[: len(short)]
    assert min(len(row) for row in cut) <= 3


def test_one_seed_serves_every_row_and_none_is_fresh():
    model = drawn(plain())
    same = generate(model, [[3, 1]] * 3, OPTIONS, Run(seeds=5)).ids
    assert same[0] == same[1] == same[2] != generate(model, [[3, 1]], OPTIONS, Run(seeds=6)).ids[0]
    fresh = generate(model, [[3, 1]] * 4, OPTIONS).ids
    assert len({tuple(row) for row in fresh}) > 1


def test_generation_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    generate(drawn(plain()), PROMPTS, OPTIONS, Run(seeds=1))
    generate(drawn(plain()), PROMPTS, OPTIONS)
    assert torch.equal(torch.get_rng_state(), before)


def test_logprobs_are_the_models_own():
    model = drawn(plain())
    result = generate(model, [[3, 1, 4]], OPTIONS.replace(top_k=3), Run(seeds=1, logprobs=True))
    row = [3, 1, 4, *result.ids[0]]
    with torch.no_grad():
        shares = model(torch.tensor([row]))[0].log_softmax(-1)
    wanted = [float(shares[place - 1, row[place]]) for place in range(3, len(row))]
    assert np.allclose(result.logprobs[0], wanted, atol=1e-12)
    assert generate(model, [[3, 1, 4]], OPTIONS).logprobs is None


@pytest.mark.parametrize(("p", "n"), [(0.79, 2), (0.81, 3), (0.0, 1), (1.0, 4)])
def test_trap_41_top_p_keeps_the_crossing_token(p, n):
    logits = torch.tensor([[0.5, 0.3, 0.1, 0.1]]).log()
    shares, _ = distribution(logits, spec.Generation(temperature=1.0, top_p=p))
    assert (shares > 0).sum() == n


def test_trap_42_temperature_0_is_greedy_and_1e_6_too_without_overflow():
    model = drawn(plain())
    greedy = generate(model, PROMPTS, spec.Generation(max_tokens=12)).ids
    for temperature in (1e-6, 1e-300):
        assert generate(model, PROMPTS, spec.Generation(max_tokens=12, temperature=temperature)).ids == greedy
    for dtype in (torch.float32, torch.bfloat16):
        shares, _ = distribution(torch.tensor([[300.0, -300.0, 200.0]], dtype=dtype), spec.Generation(temperature=1e-6))
        assert shares.tolist() == [[1.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match=r"(?s)temperature.*greater than or equal to 0"):
        spec.Generation(temperature=-0.5)


def test_trap_43_repetition_penalty_once_a_distinct_id_and_the_prompt_counts():
    logits = torch.tensor([[2.0, -2.0, 1.0]])
    assert penalise(logits, seen_ids([[0, 1, 0]], CPU), 2.0).tolist() == [[1.0, -4.0, 1.0]]
    model, row = drawn(plain()), [3, 1, 4]
    for _ in range(12):
        row.append(int(reference.penalise(logits_alone(model, row, 3), row, 1.7).argmax()))
    assert generate(model, [[3, 1, 4]], spec.Generation(max_tokens=12, repetition_penalty=1.7)).ids == [row[3:]]
    never = generate(model, [[3, 1, 4], [5]], spec.Generation(max_tokens=20, presence_penalty=1e6)).ids
    assert len({3, 1, 4, *never[0]}) == 23 and len(set(never[1]) - {5}) == 20


def test_what_a_row_has_seen_stays_with_it_when_others_end():
    logits = torch.tensor([[3.0, 2.0, 1.0]] * 2)
    sampler = Sampler(spec.Generation(presence_penalty=5.0), [[0], [1]], [], logits)
    assert sampler.choose(logits).tolist() == [1, 0]
    sampler.keep([1])
    assert sampler.choose(logits[:1]).tolist() == [0]


@pytest.mark.parametrize(
    ("ids", "n", "banned"),
    [
        ([1, 2, 3, 1, 2], 3, {3}),
        ([1, 2, 3, 1, 2], 2, {3}),
        ([1, 2, 1, 3, 1], 2, {2, 3}),
        ([1, 2, 1], 1, {1, 2}),
        ([1, 2, 3], 3, set()),
        ([1, 2], 4, set()),
        ([4, 4, 4], 3, {4}),
        ([], 1, set()),
    ],
)
def test_ids_that_would_repeat_a_run(ids, n, banned):
    assert repeating(ids, n) == banned
    for token in range(6):  # by definition: with the token the last n ids stand there twice
        text = [*ids, token]
        runs = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
        assert (token in banned) == (len(text) >= n and runs.count(runs[-1]) > 1 if runs else False)


def test_no_run_comes_twice_and_no_stop_too_early():
    options = spec.Generation(no_repeat_ngram_size=2, min_tokens=2, stop_ids=(0,))
    logits = torch.tensor([[9.0, 3.0, 2.0, 1.0], [9.0, 3.0, 2.0, 1.0]])
    sampler, texts = Sampler(options, [[1], [2]], [], logits), [[], []]
    for _ in range(4):
        tokens = sampler.choose(logits)
        sampler.note(tokens)
        for text, token in zip(texts, tokens.tolist(), strict=True):
            text.append(token)
    assert texts == [[1, 2, 0, 0], [1, 1, 0, 0]]
    sampler.keep([1])
    assert sampler.rows == [[2, 1, 1, 0, 0]]


def test_what_stands_just_at_the_border():
    """A token before which the mass of top-p is already reached goes; one exactly min-p times as likely stays."""
    even = np.zeros((1, 4))
    assert spread(even, spec.Generation(temperature=1.0, top_p=0.5)).tolist() == [[0.5, 0.5, 0.0, 0.0]]
    assert spread(even, spec.Generation(temperature=1.0, min_p=1.0)).tolist() == [[0.25] * 4]


def test_a_draw_of_nothing_passes_what_has_no_probability():
    shares = torch.tensor([[0.0, 0.0, 0.5, 0.5, 0.0]] * 3, dtype=torch.float64)
    assert draw(shares, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)).tolist() == [2, 3, 3]
