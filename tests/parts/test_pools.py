"""Padding is in no pool, whatever ids stand there."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.step import Given
from tests.conformance.alone import heads, model
from tests.conformance.models import drawn

EOS = 2


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pool", ["first", "mean", "last", "eos"])
def test_a_padded_row_is_pooled_as_alone(pool, side):
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=spec.VectorHead(pool=pool, eos_id=EOS)))
    row = torch.tensor([[5, EOS, 7, 3]])
    pads = torch.full((1, 3), EOS)
    both = (pads, row) if side == "left" else (row, pads)
    mask = torch.cat([torch.ones_like(x) if x is row else torch.zeros_like(x) for x in both], 1)
    with torch.no_grad():
        got = built(torch.cat(both, 1), Given(mask=mask))
        assert (got - built(row)).abs().max() < 1e-12


@pytest.mark.parametrize("pool", ["last", "eos", "mean", "first"])
def test_a_head_may_read_the_last_position_alone(pool):
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=spec.VectorHead(pool=pool, eos_id=EOS)))
    tokens = drawn(model(spec.Decoder, spec.Branch(part=heads())))
    row = torch.tensor([[5, 7, 3, EOS]])
    with torch.no_grad():
        assert torch.equal(built(row, last=True), tokens(row)[:, -1])
        mask = torch.tensor([[1, 1, 1, 0]])
        with pytest.raises(InputError, match=f"pool {pool}: a row without"):
            built(row, Given(mask=mask), last=True)


def test_of_several_end_tokens_the_last_is_pooled():
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=spec.VectorHead(pool="eos", eos_id=EOS)))
    tokens = drawn(model(spec.Decoder, spec.Branch(part=heads())))
    row = torch.tensor([[EOS, 5, EOS, 7]])
    with torch.no_grad():
        assert torch.equal(built(row), tokens(row)[:, 2])
