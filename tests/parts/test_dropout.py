"""In training each of the four rates zeroes its share of numbers and scales the others up; else nothing happens."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.tap import listening
from tests.conformance.models import drawn

IDS = torch.randint(0, 13, (64, 1), generator=torch.Generator().manual_seed(0))  # a token sees itself alone: weight 1
HEARD = {
    "embedding": "embedded", "residual": "blocks.0.attn.update", "hidden": "blocks.0.ffn.out",
    "attention": "blocks.0.attn.z",
}  # fmt: skip


def model(rates: spec.Dropout, network: spec.Dense | spec.Gated, n_kv_heads: int) -> torch.nn.Module:
    parts = spec.MultiHead(n_heads=4, n_kv_heads=n_kv_heads), network
    stages = tuple(spec.Stage(branches=(spec.Branch(part=part),)) for part in parts)
    record = spec.Decoder(
        d_model=8, vocab_size=13, context_length=4, layers=(spec.Block(stages=stages),), dropout=rates
    )
    built = drawn(record)
    built.blocks[0].ffn.down_proj.weight.data = torch.eye(8, dtype=torch.float64)  # so that hidden numbers are seen
    if built.blocks[0].ffn.down_proj.bias is not None:
        built.blocks[0].ffn.down_proj.bias.data.zero_()
    return built


def heard(built: torch.nn.Module, name: str, *more: str) -> torch.Tensor:
    found = {}
    with torch.no_grad(), listening(built, lambda at, x: found.update({at: x.clone()}), name, *more):
        built(IDS)
    return found[name]


@pytest.mark.parametrize("network", [spec.Dense(d_ff=8), spec.Gated(d_ff=8)])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
@pytest.mark.parametrize("where", HEARD)
def test_a_rate_drops_its_share(where, n_kv_heads, network):
    torch.manual_seed(0)
    built, name = model(spec.Dropout(**{where: 0.25}), network, n_kv_heads), HEARD[where]
    whole = heard(built, name)
    for more in ((), ("blocks.0.attn.pattern",)):  # fused, and written out
        assert torch.equal(heard(built.eval(), name, *more), heard(built.eval(), name, *more))
        dropped = heard(built.train(), name, *more)
        zero = (dropped == 0) & (whole != 0)
        assert torch.allclose(dropped[~zero], whole[~zero] / 0.75, rtol=0, atol=1e-12)
        assert 0.15 < zero.double().mean() / (whole != 0).double().mean() < 0.35
