"""Where rules turn over: the length at which frequencies change, a ramp without width, rows read in pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway import spec
from cutaway.generation import Cache
from cutaway.parts.positions import rope_frequencies, row_frequencies, t5_bucket
from cutaway.parts.step import Given
from cutaway.reference import positions as reference
from tests.conformance.models import drawn, plain

LONG = spec.LongRopeScaling(short_factors=(1.0, 1.5), long_factors=(3.0, 9.0), original_length=8, factor=4.0)


def test_longrope_changes_beyond_its_original_length():
    rope = spec.RoPE(scaling=LONG)
    frequencies = row_frequencies(rope, 4, torch.tensor([1, 8, 9])).numpy()
    plain_ones = reference.rope_frequencies(4, rope.base)
    np.testing.assert_allclose(frequencies, plain_ones / [[1.0, 1.5], [1.0, 1.5], [3.0, 9.0]])


@pytest.mark.parametrize("rotary_dim", [2, 4, 16])
def test_dynamic_frequencies_fall_beyond_the_original_length(rotary_dim):
    rope, lengths = spec.RoPE(scaling=spec.DynamicScaling(factor=3.0, original_length=8)), np.arange(1, 40)
    got = row_frequencies(rope, rotary_dim, torch.tensor(lengths)).numpy()
    np.testing.assert_allclose(got, reference.dynamic_frequencies(rotary_dim, 1e4, 3.0, 8, lengths), rtol=1e-14)
    assert (got[:8] == rope_frequencies(rope.replace(scaling=spec.NoScaling()), rotary_dim)).all()


def test_a_ramp_of_no_width_is_a_step():
    scaling = spec.YarnScaling(factor=4.0, original_length=4, beta_fast=8.0, beta_slow=0.7)
    got = rope_frequencies(spec.RoPE(scaling=scaling), 8)
    np.testing.assert_allclose(got, reference.yarn_frequencies(8, 10000.0, 4.0, 4, (8.0, 0.7, True)))
    assert got[0] == 1.0 and got[1:] == tuple(10000.0 ** (-i / 4) / 4 for i in range(1, 4))


def test_lengths_are_those_of_the_rows_so_far():
    model = drawn(plain(positions=spec.RoPE(scaling=LONG)))
    ids, mask = torch.ones(2, 9, dtype=torch.long), torch.tensor([[1] * 9, [0] * 4 + [1] * 5])
    cache = Cache(model.spec.blocks)
    for first, end, wanted in ((0, 5, [5, 1]), (5, 9, [9, 5])):
        given = Given(mask=mask[:, first:end])
        assert model.begin(ids[:, first:end], given, cache).lengths.tolist() == wanted
        with torch.no_grad():
            model(ids[:, first:end], given, cache)
    assert model.begin(ids[:, :2], Given(), cache).lengths.tolist() == [11, 7]
    unpadded = Cache(model.spec.blocks)
    with torch.no_grad():
        model(ids[:, :5], cache=unpadded)
    assert model.begin(ids[:, 5:], Given(), unpadded).lengths.tolist() == [9, 9]
    owners = torch.tensor([[0, 0, 1], [2, 1, 2]])
    assert model.begin(ids[:, :3], Given(owners=owners), None).lengths.tolist() == [[2, 2, 1], [2, 1, 2]]


def test_a_ramp_ends_within_the_head():
    scaling = spec.YarnScaling(factor=4.0, original_length=4096, beta_fast=32.0, beta_slow=1e-9)
    wanted = reference.yarn_frequencies(8, 10000.0, 4.0, 4096, (32.0, 1e-9, True))
    np.testing.assert_allclose(rope_frequencies(spec.RoPE(scaling=scaling), 8), wanted)


@pytest.mark.parametrize("sizes", [(32, 128), (8, 20), (16, 64), (6, 5), (40, 1000), (10, 160), (9, 128)])
@pytest.mark.parametrize("both", [False, True])
def test_buckets_at_every_distance(sizes, both):
    record = spec.T5Buckets(n_buckets=sizes[0], max_distance=sizes[1], bidirectional=both)
    far = np.arange(-1200, 1200)
    np.testing.assert_array_equal(t5_bucket(torch.tensor(far), record).numpy(), reference.t5_buckets(far, *sizes, both))


def test_buckets_change_at_exact_powers():
    """32 buckets to 128: 8 exact, then two for each doubling of 8, so 16, 32 and 64 begin one."""
    record = spec.T5Buckets(n_buckets=32, max_distance=128, bidirectional=True)
    far = torch.tensor([-7, -8, -15, -16, -31, -32, -63, -64, -127, -128])
    assert t5_bucket(far, record).tolist() == [7, 8, 9, 10, 11, 12, 13, 14, 15, 15]


def test_rounded_biases_of_slopes_that_are_no_powers_of_two():
    record, places = spec.ALiBi(bfloat16=True, factor=0.5), torch.arange(700)[None]
    model = drawn(plain(context_length=1024, n_heads=12, n_kv_heads=12, head_dim=4, positions=record))
    step = model.begin(torch.ones(1, 700, dtype=torch.long), Given(), None)
    got = model.blocks[0].attn.placing.bias(step, "full")[0, :, 0].numpy()
    wanted = reference.alibi_bfloat16(reference.alibi_slopes(12, record.max_bias), places.numpy(), record.factor)
    np.testing.assert_allclose(got, np.asarray(wanted).reshape(12, -1, 700)[:, 0], rtol=0, atol=0)
