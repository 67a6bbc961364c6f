"""Each other form of a spec computes what the first one does, its weights changed as the form says."""

from __future__ import annotations

import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.checkpoints.forms import forms
from cutaway.models import build

LLAMA3 = spec.Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=32)


def variant(**attention):
    record = cutaway.preset("modern-tiny").replace(dropout=spec.Dropout())
    change = lambda value: value.replace(**attention) if isinstance(value, spec.MultiHead) else value
    return spec.mapped(record, change)


def rope(**changes):
    return spec.RoPE(**{"layout": "interleaved", **changes})


SPECS = {
    "interleaved": variant(positions=rope()),
    "halves, partial, biases": variant(positions=rope(layout="halves", rotary_dim=4), q_bias=True, k_bias=True),
    "norms of q and k": variant(positions=rope(), qk_norm=spec.QKNorm()),
    "a norm a head": variant(positions=rope(), qk_norm=spec.QKNorm(gain="per_head")),
    "a norm over all heads": variant(positions=rope(), qk_norm=spec.QKNorm(over="width")),
    "gain minus one": spec.mapped(
        variant(positions=rope()), lambda v: v.replace(gain="one_plus") if isinstance(v, spec.RMSNorm) else v
    ),
    "llama 3": variant(positions=rope(scaling=LLAMA3)),
    "no rotation": variant(positions=spec.NoPositions()),
}  # fmt: skip


def logits(record, state, ids):
    model = build(record, seed=0, dtype=torch.float64).eval()
    model.load_state_dict(state)
    with torch.no_grad():
        return model(ids)


@pytest.mark.parametrize("name", SPECS)
def test_every_form_computes_the_same(name):
    record = SPECS[name]
    ids = torch.randint(0, record.vocab_size, (2, 40), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    state = {
        key: value + 0.1 * torch.randn(value.shape, generator=generator)
        for key, value in build(record, seed=3).state_dict().items()
    }
    wanted = logits(record, state, ids)
    found = list(forms(record))
    assert found[0].record == record and not found[0].changes
    said = set()
    for form in found[1:]:
        assert spec.differences(form.record, record)
        changed = {key: form.weight(key, value) for key, value in state.items()}
        assert (logits(form.record, changed, ids) - wanted).abs().max() < 2e-6, form.said
        said |= set(form.said)
    expected = {"no rotation": 1, "llama 3": 3}
    assert len(said) == expected.get(name, 2), said


def test_two_layouts_in_one_model_have_no_other():
    record = variant(positions=rope())
    blocks = list(record.blocks)
    halves = lambda v: v.replace(layout="halves") if isinstance(v, spec.RoPE) else v
    mixed = record.replace(layers=(spec.mapped(blocks[0], halves), *blocks[1:]))
    assert {said for form in forms(mixed) for said in form.said} == {"1 taken from the gains of norms"}
