"""torch equals NumPy, and every cache equals none, on 540 random specs that hold each legal pair at least once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from cutaway import spec
from cutaway.generation import Cache
from cutaway.generation.reader import attentions
from cutaway.models import build
from cutaway.parts.step import Given
from cutaway.reference import models as reference
from tests.conformance.strategies import EOS, random_specs

N = 540
SPECS = list(random_specs(N, seed=11))
AHEAD = (spec.FullMask, spec.TwoSidedMask, spec.PrefixMask)


def drawn(record):
    model = build(record, seed=1, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def ids_for(n_tokens, vocab_size, seed):
    ids = torch.randint(1, vocab_size, (2, n_tokens), generator=torch.Generator().manual_seed(seed))
    ids[:, -1] = EOS
    return ids


def run(model, ids, source, prefix, cache=None):
    if isinstance(model.spec, spec.EncoderDecoder):
        return model(ids, Given(memory=model.encode(source)), cache)
    return model(ids, Given(prefix=prefix), cache)


@pytest.mark.parametrize("index", range(N))
def test_torch_equals_numpy(index):
    record = SPECS[index]
    model = drawn(record)
    two = isinstance(record, spec.EncoderDecoder)
    ids = ids_for(7, record.decoder.vocab_size if two else record.vocab_size, 3)
    source = ids_for(5, record.encoder.vocab_size, 4) if two else None
    prefix = torch.tensor([3, 2]) if isinstance(record, spec.PrefixDecoder) else None
    with torch.no_grad():
        got = run(model, ids, source, prefix).numpy()
    weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
    given = reference.Given(
        source=None if source is None else source.numpy(), prefix=None if prefix is None else prefix.numpy()
    )
    wanted = reference.forward(record, weights, ids.numpy(), given=given).output
    assert got.shape == wanted.shape and np.isfinite(wanted).all()
    assert np.abs(got - wanted).max() <= 1e-10 * max(1.0, np.abs(wanted).max())


def cacheable(record):
    side = record.decoder if isinstance(record, spec.EncoderDecoder) else record
    changing = (spec.DynamicScaling, spec.LongRopeScaling)  # a key keeps the rotation that it was written with
    return isinstance(record, (spec.Decoder, spec.EncoderDecoder)) and not any(
        isinstance(part.mask, AHEAD)
        or (isinstance(part.positions, spec.RoPE) and isinstance(part.positions.scaling, changing))
        for part in attentions(side.blocks)
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
    model, two = drawn(record), isinstance(record, spec.EncoderDecoder)
    side = record.decoder if two else record
    ids, source = ids_for(7, side.vocab_size, 5), ids_for(5, record.encoder.vocab_size, 6) if two else None
    cache = Cache(side.blocks, kind, capacity=7)
    with torch.no_grad():
        whole = run(model, ids, source, None)
        steps = [run(model, ids[:, a:b], source, None, cache) for a, b in ((0, 3), (3, 4), (4, 5), (5, 7))]
    assert (torch.cat(steps, 1) - whole).abs().max() <= 1e-10 * max(1.0, float(whole.abs().max()))
