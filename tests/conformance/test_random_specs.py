"""torch equals NumPy, and every cache equals none, on 540 random specs that hold each legal pair at least once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from cutaway import spec
from cutaway.generation import Cache
from tests.conformance.models import Inputs, drawn
from tests.conformance.strategies import random_specs

N = 540
SPECS = list(random_specs(N, seed=11))
AHEAD = (spec.FullMask, spec.TwoSidedMask, spec.PrefixMask)


@pytest.mark.parametrize("index", range(N))
def test_torch_equals_numpy(index):
    record = SPECS[index]
    model, given = drawn(record), Inputs.of(record)
    with torch.no_grad():
        got = given.run(model).numpy()
    wanted = given.define(record, dict(model.named_parameters())).output
    assert got.shape == wanted.shape and np.isfinite(wanted).all()
    assert np.abs(got - wanted).max() <= 1e-10 * max(1.0, np.abs(wanted).max())


def cacheable(record):
    changing = (spec.DynamicScaling, spec.LongRopeScaling)  # a key keeps the rotation that it was written with
    return isinstance(record, (spec.Decoder, spec.EncoderDecoder)) and not any(
        isinstance(part.mask, AHEAD)
        or (isinstance(part.positions, spec.RoPE) and isinstance(part.positions.scaling, changing))
        for part in spec.attentions(spec.last_stack(record).blocks)
    )


CACHEABLE = [i for i, record in enumerate(SPECS) if cacheable(record) and isinstance(record.head, spec.LanguageHead)]


def test_enough_of_every_kind():
    kinds = Counter(kind for record in SPECS for kind in set(spec.kinds_in(record)))
    assert min(kinds[kind] for kind in spec.pairs.all_kinds()) >= 10
    assert set().union(*(spec.pairs_in(record) for record in SPECS)) >= set(spec.legal_pairs())
    assert len(CACHEABLE) >= 100


@pytest.mark.parametrize("index", CACHEABLE)
@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
def test_cached_equals_recomputed(index, kind):
    record = SPECS[index]
    model, given = drawn(record), Inputs.of(record, seed=5)
    cache = Cache(spec.last_stack(record).blocks, kind, capacity=7)
    with torch.no_grad():
        whole = given.run(model)
        steps = [given.columns(a, b).run(model, cache) for a, b in ((0, 3), (3, 4), (4, 5), (5, 7))]
    assert (torch.cat(steps, 1) - whole).abs().max() <= 1e-10 * max(1.0, float(whole.abs().max()))
