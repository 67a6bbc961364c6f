"""Padding is in no pool, whatever ids stand there."""

from __future__ import annotations

from functools import partial

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
@pytest.mark.parametrize("kind", [spec.VectorHead, partial(spec.ClassHead, n_classes=3)])
def test_a_head_that_pools_reads_the_whole_row_where_the_last_column_is_asked_for(pool, kind):
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=kind(pool=pool, eos_id=EOS)))
    row, given = torch.tensor([[5, EOS, 3, 7]]), Given(mask=torch.tensor([[1, 1, 1, 0]]))
    with torch.no_grad():
        assert torch.equal(built(row, last=True), built(row))
        assert (built(row, given, last=True) - built(row[:, :3])).abs().max() < 1e-12


@pytest.mark.parametrize("kind", [spec.VectorHead, partial(spec.ClassHead, n_classes=3), spec.LanguageHead])
def test_a_head_of_tokens_may_read_the_last_one_alone(kind):
    head = kind() if kind is spec.LanguageHead else kind(pool="none")
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=head))
    row = torch.tensor([[5, 7, 3, EOS]])
    with torch.no_grad():
        assert (built(row, last=True) - built(row)[:, -1:]).abs().max() < 1e-12


@pytest.mark.parametrize("pool", ["last", "eos", "mean", "first"])
def test_a_row_of_padding_alone_is_refused(pool):
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=spec.VectorHead(pool=pool, eos_id=EOS)))
    with torch.no_grad(), pytest.raises(InputError, match=f"pool {pool}: a row without"):
        built(torch.tensor([[EOS, EOS]]), Given(mask=torch.zeros(1, 2)), last=True)


def test_of_several_end_tokens_the_last_is_pooled():
    built = drawn(model(spec.Decoder, spec.Branch(part=heads()), head=spec.VectorHead(pool="eos", eos_id=EOS)))
    tokens = drawn(model(spec.Decoder, spec.Branch(part=heads())))
    row = torch.tensor([[EOS, 5, EOS, 7]])
    with torch.no_grad():
        assert torch.equal(built(row), tokens(row)[:, 2])
