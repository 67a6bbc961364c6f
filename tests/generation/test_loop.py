"""However a prompt is read (cached, in chunks, batched, padded), the text is that of reading all anew, alone."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation import Cache, Run, Stream, generate, reader
from tests.conformance.models import drawn, greedy_alone, plain, translator, writer
from tests.conformance.strategies import random_specs

N_NEW = 6
PROMPTS = [[4, 7, 2], [3, 9, 10, 5, 6, 8, 2], [5]]
RECORDS = [writer(record) for record in random_specs(220) if not isinstance(record, (spec.Encoder, spec.ImageEncoder))]


def grows_past_dynamic(record: spec.Model, prompts: list[list[int]]) -> bool:
    """Whether a row passes the original length of a dynamic NTK scaling while it is written."""
    parts = spec.attentions(spec.last_stack(record).blocks)
    scalings = [part.positions.scaling for part in parts if isinstance(part.positions, spec.RoPE)]
    longest = max(len(row) for row in prompts) + N_NEW
    return any(isinstance(each, spec.DynamicScaling) and longest > each.original_length for each in scalings)


def expected(model, record: spec.Model) -> list[list[int]]:
    if isinstance(record, spec.EncoderDecoder):
        return [greedy_alone(model, [2], N_NEW, source) for source in PROMPTS]
    return [greedy_alone(model, prompt, N_NEW) for prompt in PROMPTS]


def test_there_are_over_100_random_specs_of_every_kind():
    assert len(RECORDS) > 100
    assert {record.kind for record in RECORDS} == {"decoder", "prefix", "encoder_decoder"}
    parts = [part for record in RECORDS for part in spec.attentions(spec.last_stack(record).blocks)]
    assert {part.mask.kind for part in parts} == {"full", "causal", "sliding", "chunked", "prefix"}


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_random_spec(number):
    record = RECORDS[number]
    model, options = drawn(record, number), spec.Generation(max_tokens=N_NEW, start_id=2)
    if grows_past_dynamic(record, PROMPTS):  # a key keeps the rotation that it was written with
        wanted = [generate(model, [prompt], options).ids[0] for prompt in PROMPTS]
    else:
        wanted = expected(model, record)
    for run in (Run(), Run(cache="fixed", chunk=3), Run(cache="ring", chunk=2)):
        assert generate(model, PROMPTS, options, run).ids == wanted, run
    if not grows_past_dynamic(record, PROMPTS):
        assert generate(model, PROMPTS, options, Run(cache=None)).ids == wanted


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
def test_padding_that_a_mask_tells_moves_nothing(kind, side):
    model = drawn(plain() if kind == "decoder" else translator())
    width = 9
    ids, mask = torch.full((3, width), 11), torch.zeros(3, width, dtype=torch.long)
    for row, prompt in enumerate(PROMPTS):
        first = {"left": width - len(prompt), "right": 0, "both": 1}[side]
        ids[row, first : first + len(prompt)] = torch.tensor(prompt)
        mask[row, first : first + len(prompt)] = 1
    options = spec.Generation(max_tokens=N_NEW, start_id=2)
    assert generate(model, ids, options, mask=mask).ids == generate(model, PROMPTS, options).ids


@pytest.mark.parametrize("scaling", ["longrope", "dynamic"])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_a_prompt_past_the_original_length_is_turned_alike_in_chunks(scaling, chunk):
    model = drawn(plain(positions=spec.RoPE(scaling=SCALINGS[scaling])))
    prompts, options = [list(range(1, 15)), [3, 4]], spec.Generation(max_tokens=1)
    wanted = [greedy_alone(model, prompt, 1) for prompt in prompts]
    assert generate(model, prompts, options, Run(chunk=chunk)).ids == wanted


SCALINGS = {
    "longrope": spec.LongRopeScaling(short_factors=(1.0, 1.5), long_factors=(3.0, 9.0), original_length=8, factor=4.0),
    "dynamic": spec.DynamicScaling(factor=4.0, original_length=8),
}


def test_longrope_rebuilds_the_cache_once_a_crossing(monkeypatch):
    made = []
    monkeypatch.setattr(reader, "Cache", lambda *given: made.append(given) or Cache(*given))
    model = drawn(plain(positions=spec.RoPE(scaling=SCALINGS["longrope"])))
    prompts, options = [[1, 2, 3, 4, 5], [3, 4]], spec.Generation(max_tokens=12)
    got = generate(model, prompts, options).ids
    assert got == [greedy_alone(model, prompt, 12) for prompt in prompts]
    assert len(made) == 3  # the start, and the moment when each of the two rows becomes longer than 8


def test_dynamic_ntk_keeps_the_rotation_that_a_key_was_written_with():
    """The documented difference: cached keys stay, so beyond the original length the text may part from recomputing."""
    model = drawn(plain(positions=spec.RoPE(scaling=SCALINGS["dynamic"], base=100.0)))
    options = spec.Generation(max_tokens=30)
    cached = generate(model, [[1, 2, 3]], options, Run(logprobs=True))
    anew = generate(model, [[1, 2, 3]], options, Run(cache=None, logprobs=True))
    pairs = zip(cached.logprobs[0], anew.logprobs[0], strict=True)
    first = next(place for place, (a, b) in enumerate(pairs) if abs(a - b) > 1e-12)
    assert first == 6  # 3 + 6 tokens have been read: the first beyond 8


def test_rows_that_end_leave_the_batch_and_the_others_go_on_to_the_context():
    """Padding of a long row that has ended does not take room from a short one."""
    model = drawn(plain(context_length=16))
    prompts = [list(range(1, 14)), [3, 4], [5, 6, 7]]
    result = generate(model, prompts, spec.Generation())
    assert [len(ids) for ids in result.ids] == [3, 14, 13]
    assert result.ids == [greedy_alone(model, prompt, 16 - len(prompt)) for prompt in prompts]


@pytest.mark.parametrize("cache", ["growing", None])
def test_a_prefix_stays_with_its_row_when_others_end(cache):
    model = drawn(spec.PrefixDecoder(**{**dict(plain(mask=spec.PrefixMask())), "kind": "prefix"}))
    free = [greedy_alone(model, prompt, 8) for prompt in PROMPTS]
    options = spec.Generation(max_tokens=8, stop_ids=(free[0][1],))  # the first row, whose prefix is short, ends early
    got = generate(model, PROMPTS, options, Run(cache=cache)).ids
    assert len(got[0]) <= 2 and any(len(row) > 2 for row in got)
    for row, whole in zip(got, free, strict=True):
        assert row == whole[: len(row)]


def test_trap_04_left_padding_counts_from_the_first_real_token():
    table = spec.TokenEmbedding(positions=spec.Learned(n_positions=64))
    model = drawn(plain(positions=spec.NoPositions()).replace(embedding=table))
    together = generate(model, PROMPTS, spec.Generation(max_tokens=8)).ids
    assert together == [greedy_alone(model, prompt, 8) for prompt in PROMPTS]


@pytest.mark.parametrize("counted", [spec.ByColumn(), spec.FromIds(pad_id=7)])
def test_positions_by_column_or_from_ids_are_those_of_the_row_alone(counted):
    table = spec.TokenEmbedding(positions=spec.Learned(n_positions=64, offset=2, counted=counted))
    model = drawn(plain(positions=spec.NoPositions()).replace(embedding=table))
    together = generate(model, PROMPTS, spec.Generation(max_tokens=8)).ids  # the id 7 stands in the first prompt
    assert together == [greedy_alone(model, prompt, 8) for prompt in PROMPTS]


def test_trap_16_one_query_sees_all_keys_and_chunks_see_what_one_piece_sees():
    model = drawn(plain(n_heads=2, n_kv_heads=1))
    for chunk in (1, 2, 5, 100):
        ids = generate(model, [list(range(1, 12))], spec.Generation(max_tokens=5), Run(chunk=chunk)).ids[0]
        assert ids == greedy_alone(model, list(range(1, 12)), 5)


def test_trap_17_logits_with_and_without_cache_agree_at_every_step():
    model, options = drawn(plain()), spec.Generation(max_tokens=20)
    cached, anew = (generate(model, PROMPTS, options, Run(cache=cache, logprobs=True)) for cache in ("growing", None))
    assert cached.ids == anew.ids
    for one, other in zip(cached.logprobs, anew.logprobs, strict=True):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-12


def test_a_model_without_its_mask_is_read_anew_each_step():
    record = plain(mask=spec.FullMask())
    model = drawn(record)
    assert generate(model, PROMPTS, spec.Generation(max_tokens=8)).ids == [greedy_alone(model, p, 8) for p in PROMPTS]


def test_dropout_sleeps_while_a_model_in_training_writes():
    model = drawn(plain().replace(dropout=spec.Dropout(residual=0.5, embedding=0.5)))
    wanted = generate(model, PROMPTS, spec.Generation(max_tokens=8)).ids
    model.train()
    assert generate(model, PROMPTS, spec.Generation(max_tokens=8)).ids == wanted
    assert model.training


def test_grad_mode_is_the_callers_between_two_tokens():
    for _ in Stream(drawn(plain()), [1, 2], spec.Generation(max_tokens=3)):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("record", [plain(), translator()], ids=["decoder", "encoder_decoder"])
def test_what_stands_in_the_models_place_is_called_for_every_step(record):
    """Also for the tokens that are otherwise decoded in fewer calls, and the source."""
    model, options, calls = drawn(record), spec.Generation(max_tokens=N_NEW, start_id=2), []

    class Forward:
        def __call__(self, ids, given, cache, last):
            calls.append(ids.shape[1])
            return model(ids, given, cache, last)

        def encode(self, source, given):
            calls.append("source")
            return model.encode(source, given)

    assert (
        generate(model, PROMPTS[:1], options, Run(forward=Forward())).ids == generate(model, PROMPTS[:1], options).ids
    )
    assert calls == ([3] if record.kind == "decoder" else ["source", 1]) + [1] * (N_NEW - 1)


@pytest.mark.slow
@pytest.mark.parametrize("record", [plain(), translator()], ids=["decoder", "encoder_decoder"])
def test_a_model_that_torch_compiles_stands_in_its_own_place(record):
    torch._dynamo.reset()
    model, options, graphs = drawn(record), spec.Generation(max_tokens=N_NEW, start_id=2), []
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=lambda g, _: graphs.append(g) or g.forward)
    wanted = generate(model, PROMPTS[:1], options).ids
    assert generate(compiled, PROMPTS[:1], options).ids == wanted and 2 <= len(graphs) <= 3
    assert generate(model, PROMPTS[:1], options, Run(forward=compiled)).ids == wanted and 2 <= len(graphs) <= 3


def test_what_cannot_stand_in_the_models_place_is_named():
    decoder, both = drawn(plain()), drawn(translator())
    for match, model, forward in (
        ("forward: a int", decoder, 3),
        ("no `encode`", both, both.decoder.forward),
        ("forward: it gave a tuple", decoder, lambda *call, last: (decoder(*call, last), None)),
    ):
        with pytest.raises(InputError, match=match):
            generate(model, [[1, 2]], spec.Generation(max_tokens=2, start_id=2), Run(forward=forward))
