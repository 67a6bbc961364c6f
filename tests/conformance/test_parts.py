"""Every part of every kind by itself: equal to its NumPy definition, and its gradients are finite differences."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cutaway import parts, spec
from tests.conformance.alone import SPECS
from tests.conformance.models import Inputs, check_slopes, drawn

RATES = spec.Dropout(embedding=0.2, attention=0.3, residual=0.25, hidden=0.4)


def inputs(record: spec.Model, padded: bool) -> Inputs:
    """Rows of 6 tokens, more than any window or chunk here; padded: two on the left, one on the right of a row."""
    whole = Inputs.of(record, n_tokens=6)
    if not padded:
        return whole
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[0, :2] = 0
    if not isinstance(record.head, (spec.ClassHead, spec.VectorHead)) or record.head.pool != "eos":
        mask[1, -1] = 0  # the end token, which that pool needs
    source_mask = None if whole.source is None else torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return replace(whole, mask=mask, source_mask=source_mask)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_torch_equals_numpy(name, padded):
    record = SPECS[name]
    model, given = drawn(record), inputs(record, padded)
    aux: list[torch.Tensor] = []
    with torch.no_grad():
        got = given.run(model, aux=aux).numpy()
    wanted = given.define(record, dict(model.named_parameters()))
    if padded and got.ndim == 3:  # what stands at padding is never looked at
        got, wanted = got[given.mask == 1], replace(wanted, output=wanted.output[given.mask == 1])
    assert got.shape == wanted.output.shape and np.isfinite(got).all()
    assert np.abs(got - wanted.output).max() <= 1e-11 * max(1.0, np.abs(wanted.output).max())
    assert float(sum(aux)) == pytest.approx(wanted.balance, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("rates", [spec.Dropout(), RATES], ids=["plain", "dropout"])
@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_finite_differences(name, rates):
    record = SPECS[name].replace(dropout=rates)
    model, given = drawn(record).train(), inputs(record, padded=True)
    weight = torch.randn(given.run(model).shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    if weight.dim() == 3:
        weight = weight * given.mask[..., None]

    def value() -> torch.Tensor:
        torch.manual_seed(6)  # the same numbers are dropped each time
        aux: list[torch.Tensor] = []
        return (given.run(model, aux=aux) * weight).sum() + sum(aux)

    check_slopes(value, model)


def test_every_kind_of_every_union_is_there():
    tested = set().union(*(spec.kinds_in(record) for record in SPECS.values()))
    others = {"Layer.repeat", "Part.no_cross", "SharedExpert.none"}  # a short form, and what has nothing to compute
    assert spec.pairs.all_kinds() - tested <= others


def test_every_class_of_parts_is_there():
    modules = [importlib.import_module(f"cutaway.parts.{each.name}") for each in pkgutil.iter_modules(parts.__path__)]
    classes = {
        thing for module in modules for thing in vars(module).values()
        if inspect.isclass(thing) and issubclass(thing, nn.Module) and thing.__module__ == module.__name__
    }  # fmt: skip
    built = {type(module) for record in SPECS.values() for module in drawn(record).modules()}
    assert len(classes) >= 20 and classes - built == set()
