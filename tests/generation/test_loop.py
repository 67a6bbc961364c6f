"""Generation: equal with every way of reading, ended for a reason, refused by name."""

from __future__ import annotations

import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation.loop import generate
from cutaway.generation.result import Run
from cutaway.generation.sampling import distribution, penalise, seen_ids


def model_of(name="modern-tiny", seed=5):
    model = cutaway.build(cutaway.preset(name), seed=seed, dtype=torch.float64).eval()
    for parameter in model.parameters():
        parameter.data *= 4
    return model


OPTIONS = spec.Generation(max_tokens=12)


@pytest.mark.parametrize("run", [Run(chunk=2), Run(cache="fixed"), Run(cache="ring"), Run(cache=None)])
def test_every_way_of_reading_gives_the_same_ids(run):
    model, prompt = model_of(), [3, 1, 4, 1, 5]
    assert generate(model, [prompt], OPTIONS, run).ids == generate(model, [prompt], OPTIONS).ids


def test_batched_equals_single():
    model, prompts = model_of(), [[3, 1, 4], [9], [2, 6, 5, 3, 5]]
    assert generate(model, prompts, OPTIONS).ids == [generate(model, [p], OPTIONS).ids[0] for p in prompts]


def test_seed_decides_alone_or_in_a_batch():
    model, options = model_of(), spec.Generation(max_tokens=8, temperature=1.0, top_p=0.9)
    one = generate(model, [[3, 1]], options, Run(seeds=7)).ids[0]
    assert one == generate(model, [[3, 1], [4]], options, Run(seeds=7)).ids[0]
    assert one != generate(model, [[3, 1]], options, Run(seeds=8)).ids[0]


def test_encoder_decoder_cached_equals_recomputed():
    model = model_of("original-2017-tiny")
    options = spec.Generation(max_tokens=6, start_id=1)
    new = generate(model, [[5, 6, 7]], options).ids[0]
    memory = model.encode(torch.tensor([[5, 6, 7]]))
    with torch.no_grad():
        logits = model(torch.tensor([[1, *new[:-1]]]), cutaway.Given(memory=memory))
    assert logits[0].argmax(-1).tolist() == new


def test_it_ends_at_the_context_with_a_reason():
    model = model_of()
    limit = model.spec.context_length
    result = generate(model, [[1] * (limit - 3)], spec.Generation())
    assert len(result.ids[0]) == 3 and "context" in str(result.reasons[0])


def test_a_prompt_beyond_the_context_is_refused():
    model = model_of()
    with pytest.raises(InputError, match="context"):
        generate(model, [[1] * (model.spec.context_length + 1)], OPTIONS)
    with pytest.raises(InputError, match="prompt"):
        generate(model, [[]], OPTIONS)


@pytest.mark.parametrize(("p", "n"), [(0.79, 2), (0.81, 3), (0.0, 1), (1.0, 4)])
def test_trap_41_top_p_keeps_the_crossing_token(p, n):
    logits = torch.tensor([[0.5, 0.3, 0.1, 0.1]]).log()
    shares, _ = distribution(logits, spec.Generation(temperature=1.0, top_p=p))
    assert (shares > 0).sum() == n


def test_trap_42_tiny_temperature_is_greedy_without_overflow():
    shares, _ = distribution(torch.tensor([[1.0, 3.0, 2.0]]), spec.Generation(temperature=1e-6))
    assert shares.tolist() == [[0.0, 1.0, 0.0]]


def test_trap_43_repetition_penalty():
    logits = torch.tensor([[2.0, -2.0, 1.0]])
    out = penalise(logits, seen_ids([[0, 1, 0]], logits), 2.0, 0.0)
    assert out.tolist() == [[1.0, -4.0, 1.0]]
