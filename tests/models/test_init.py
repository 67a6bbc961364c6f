"""Weights to start training from."""

from __future__ import annotations

import torch

from cutaway import build, spec


def branch(part):
    return spec.Stage(branches=(spec.Branch(part=part, norm_in=spec.RMSNorm()),))


def test_matrices_are_small_and_what_writes_to_the_stream_is_smaller():
    heads = spec.MultiHead(n_heads=4, sinks=True, q_bias=True, positions=spec.T5Buckets())
    experts = spec.MixtureOfExperts(
        n_experts=4, n_active=2, expert=spec.Gated(d_ff=96), router=spec.Router(bias=True, choice_bias=True)
    )
    record = spec.Decoder(
        d_model=64, vocab_size=300, context_length=16, final_norm=spec.LayerNorm(),
        embedding=spec.TokenEmbedding(positions=spec.Learned(n_positions=16)),
        layers=(spec.Repeat(times=8, blocks=(spec.Block(stages=(branch(heads), branch(experts))),)),),
    )  # fmt: skip
    model = build(record, seed=3)
    for name, weight in model.state_dict().items():
        if weight.dim() == 1:
            gain = name.endswith("norm_in.weight") or name == "final_norm.weight"
            assert torch.equal(weight, torch.full_like(weight, float(gain))), name
        else:
            wanted = 0.02 / 4 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02  # sqrt(2 * 8)
            assert abs(float(weight.std()) / wanted - 1) < 4 / weight.numel() ** 0.5, name
    again, other = build(record, seed=3).state_dict(), build(record, seed=4).state_dict()
    assert all(torch.equal(weight, again[name]) for name, weight in model.state_dict().items())
    assert not torch.equal(again["embedding.tokens.weight"], other["embedding.tokens.weight"])
