"""Where rules turn over: the length at which frequencies change, a ramp without width, rows read in pieces."""

from __future__ import annotations

import numpy as np
import torch

from cutaway import spec
from cutaway.generation import Cache
from cutaway.parts.positions import rope_frequencies
from cutaway.parts.step import Given
from cutaway.reference import positions as reference
from tests.generation.models import drawn, plain

LONG = spec.LongRopeScaling(short_factors=(1.0, 1.5), long_factors=(3.0, 9.0), original_length=8, factor=4.0)


def test_longrope_changes_beyond_its_original_length():
    rope = spec.RoPE(scaling=LONG)
    frequencies = np.array([rope_frequencies(rope, 4, length) for length in (1, 8, 9)])
    plain_ones = reference.rope_frequencies(4, rope.base)
    np.testing.assert_allclose(frequencies, plain_ones / [[1.0, 1.5], [1.0, 1.5], [3.0, 9.0]])


def test_a_ramp_of_no_width_is_a_step():
    scaling = spec.YarnScaling(factor=4.0, original_length=4, beta_fast=8.0, beta_slow=0.7)
    got = rope_frequencies(spec.RoPE(scaling=scaling), 8, 0)
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
    owners = torch.tensor([[0, 0, 1], [2, 1, 2]])
    assert model.begin(ids[:, :3], Given(owners=owners), None).lengths.tolist() == [[2, 2, 1], [2, 1, 2]]
