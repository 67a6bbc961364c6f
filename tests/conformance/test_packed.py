"""Documents packed into rows give what each gives alone: in one piece, and continued from every kind of cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation import Cache
from cutaway.parts.step import Given
from cutaway.reference import models as reference
from tests.conformance.models import drawn
from tests.conformance.strategies import random_specs
from tests.conformance.test_agreement import SPECS, decoder, heads

OWNERS = torch.tensor([[0] * 5 + [3] * 4 + [1] * 8, [-1] * 2 + [2] * 9 + [0] * 6])
IDS = torch.randint(1, 23, OWNERS.shape, generator=torch.Generator().manual_seed(7))
PIECES = ((0, 7), (7, 8), (8, 12), (12, 13), (13, 14), (14, 17))  # within a document, at its border, its single tokens
BY_LENGTH = {
    "dynamic": decoder(heads(positions=spec.RoPE(scaling=spec.DynamicScaling(factor=3.0, original_length=5)))),
    "longrope": decoder(
        heads(
            positions=spec.RoPE(
                scaling=spec.LongRopeScaling(
                    short_factors=(1.0, 1.5), long_factors=(3.0, 9.0), original_length=6, factor=4.0
                )
            )
        )
    ),
}
TABLE = spec.Learned(n_positions=64)
PACKED = SPECS | {
    "by column": decoder(heads(), embedding=spec.TokenEmbedding(positions=TABLE.replace(counted=spec.ByColumn()))),
    "a pad id inside": decoder(
        heads(), embedding=spec.TokenEmbedding(positions=TABLE.replace(offset=1, counted=spec.FromIds(pad_id=9)))
    ),
}


def documents() -> list[tuple[int, torch.Tensor]]:
    """Row and columns of each document."""
    found = []
    for row, owners in enumerate(OWNERS):
        found += [(row, (owners == owner).nonzero()[:, 0]) for owner in owners.unique() if owner >= 0]
    return found


def check_alone(model, got: torch.Tensor) -> None:
    for row, columns in documents():
        alone = model(IDS[row, columns][None])[0]
        assert (got[row, columns] - alone).abs().max() < 1e-12 * max(1.0, float(alone.abs().max()))


@pytest.mark.parametrize("name", [*PACKED, *BY_LENGTH])
def test_in_one_piece(name):
    record = (PACKED | BY_LENGTH)[name]
    model = drawn(record)
    with torch.no_grad():
        got = model(IDS, Given(owners=OWNERS))
        check_alone(model, got)
    weights = {key: p.detach().numpy() for key, p in model.named_parameters()}
    wanted = reference.forward(record, weights, IDS.numpy(), given=reference.Given(owners=OWNERS.numpy())).output
    off = np.abs(got.numpy() - wanted)[OWNERS.numpy() >= 0]
    assert off.max() <= 1e-10 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
@pytest.mark.parametrize("name", PACKED)
def test_in_pieces_from_a_cache(name, kind):
    model, cache = drawn(PACKED[name]), Cache(PACKED[name].blocks, kind, capacity=17)
    with torch.no_grad():
        steps = [model(IDS[:, a:b], Given(owners=OWNERS[:, a:b]), cache) for a, b in PIECES]
        check_alone(model, torch.cat(steps, 1))


def packable(record: spec.Model) -> bool:
    """A decoder whose layers look back alone and whose rotations do not go by length."""
    changing = (spec.DynamicScaling, spec.LongRopeScaling)
    return isinstance(record, spec.Decoder) and not any(
        isinstance(part.mask, spec.FullMask)
        or (isinstance(part.positions, spec.RoPE) and isinstance(part.positions.scaling, changing))
        for part in spec.attentions(record.blocks)
    )


RANDOM = [each for each in random_specs(240, seed=17) if packable(each) and isinstance(each.head, spec.LanguageHead)]


def test_enough_random_specs():
    assert len(RANDOM) >= 30


@pytest.mark.parametrize("index", range(len(RANDOM)))
def test_random_specs_in_pieces(index):
    record, kind = RANDOM[index], ("growing", "fixed", "ring")[index % 3]
    ids, owners = IDS % record.vocab_size, OWNERS
    model, cache = drawn(record), Cache(record.blocks, kind, capacity=17)
    with torch.no_grad():
        steps = torch.cat([model(ids[:, a:b], Given(owners=owners[:, a:b]), cache) for a, b in PIECES], 1)
        for row, columns in documents():
            alone = model(ids[row, columns][None])[0]
            assert (steps[row, columns] - alone).abs().max() <= 1e-12 * max(1.0, float(alone.abs().max()))


@pytest.mark.parametrize("kind", ["growing", "fixed"])
def test_an_earlier_document_goes_on(kind):
    """Documents may also take turns, where all keys are kept; plain rows may become packed ones."""
    record = decoder(heads(positions=spec.RoPE(), mask=spec.SlidingMask(window=3)))
    model, cache = drawn(record), Cache(record.blocks, kind, capacity=12)
    owners = torch.tensor([[0, 0, 0, 1, 1, 0, 1, 2, 0, 0, 2, 1]]).expand(2, -1)
    with torch.no_grad():
        steps = [model(IDS[:, :3], cache=cache)]
        steps += [model(IDS[:, a:b], Given(owners=owners[:, a:b]), cache) for a, b in ((3, 6), (6, 7), (7, 12))]
        got = torch.cat(steps, 1)
        for owner in range(3):
            columns = (owners[0] == owner).nonzero()[:, 0]
            assert (got[:, columns] - model(IDS[:, columns])).abs().max() < 1e-12


def test_rows_of_packed_documents_turn_round():
    record = decoder(heads(positions=spec.RoPE(), mask=spec.SlidingMask(window=3)))
    rows = torch.tensor([1, 0, 1])
    for kind in ("growing", "ring"):
        model, cache = drawn(record), Cache(record.blocks, kind)
        with torch.no_grad():
            whole = model(IDS, Given(owners=OWNERS))
            model(IDS[:, :13], Given(owners=OWNERS[:, :13]), cache)
            cache.reorder(rows)
            got = model(IDS[rows, 13:], Given(owners=OWNERS[rows, 13:]), cache)
        assert (got - whole[rows, 13:]).abs().max() < 1e-12


def test_a_ring_refuses_a_document_that_it_has_lost():
    record = decoder(heads(mask=spec.SlidingMask(window=3)))
    model, cache = drawn(record), Cache(record.blocks, "ring")
    with torch.no_grad():
        model(IDS[:, :8], Given(owners=torch.tensor([[0] * 4 + [1] * 4] * 2)), cache)
        for again in ([[0], [0]], [[1], [0]], [[1, 0], [1, 1]]):
            with pytest.raises(InputError, match="not those of an earlier document"):
                model(IDS[:, 8 : 8 + len(again[0])], Given(owners=torch.tensor(again)), cache)
        model(IDS[:, 8:10], Given(owners=torch.tensor([[1, 2], [-1, 1]])), cache)
        cache = Cache(record.blocks, "ring")
        model(IDS[:, :3], Given(owners=torch.tensor([[0, 0, 1]] * 2)), cache)
        with pytest.raises(InputError, match="not those of an earlier document"):  # one key of three is missing
            model(IDS[:, 3:4], Given(owners=torch.tensor([[0], [0]])), cache)


def test_what_follows_packed_documents_must_be_told():
    record = decoder()
    model, cache = drawn(record), Cache(record.blocks)
    with torch.no_grad():
        model(IDS[:, :8], Given(owners=OWNERS[:, :8]), cache)
        for given in (Given(), Given(mask=torch.ones(2, 1, dtype=torch.long))):
            with pytest.raises(InputError, match="owners: the cache holds packed documents; say which"):
                model(IDS[:, 8:9], given, cache)


def test_a_document_longer_than_the_context_is_refused():
    record = decoder().replace(context_length=8)
    model, owners = drawn(record), OWNERS.clone()
    owners[1, 2:4] = 5  # its document of nine becomes one of seven
    with torch.no_grad():
        assert model(IDS, Given(owners=owners)).isfinite().all()
        with pytest.raises(InputError, match="ids: 9 tokens, but the model's context is 8"):
            model(IDS, Given(owners=OWNERS))
        cache = Cache(record.blocks)
        model(IDS, Given(owners=owners), cache)
        with pytest.raises(InputError, match="ids: 9 tokens, but the model's context is 8"):
            model(IDS[:, :1], Given(owners=owners[:, -1:]), cache)
