"""Specs that say the same in other words are equal once settled; what differs is named."""

from __future__ import annotations

import pytest

from cutaway import spec


@pytest.mark.parametrize("name", spec.names())
def test_settling_changes_nothing_that_acts(name):
    record = spec.preset(name)
    settled = spec.settled(record)
    assert spec.settled(settled) == settled
    assert spec.weights(settled) == spec.weights(record)
    assert spec.differences(record, settled) == []


def test_words_and_numbers_are_equal():
    llama = spec.preset("llama")
    n = spec.sizes(llama.blocks[0].branches[0].part, llama.d_model)
    said = {"n_kv_heads": n.n_kv_heads, "head_dim": n.head_dim, "value_dim": n.value_dim, "scale": n.scale}
    written_out = spec.set_values(llama, {f"layers.attn.{key}": str(value) for key, value in said.items()})
    assert written_out != llama
    assert spec.differences(llama, written_out.replace(name="other", layers=written_out.blocks)) == []


def test_a_difference_is_named_once_for_all_its_layers():
    gpt2 = spec.preset("gpt2")
    blocks = list(gpt2.blocks)
    for i in (1, 2, 5):
        attn, ffn = blocks[i].stages
        branch = attn.branches[0].replace(part=attn.branches[0].part.replace(q_bias=False))
        blocks[i] = blocks[i].replace(stages=(attn.replace(branches=(branch,)), ffn))
    changed = gpt2.replace(layers=tuple(blocks[:-1]), final_norm=spec.RMSNorm())
    assert spec.differences(gpt2, changed) == [
        ("layers 1–2, 5 stage 0.attn.q_bias", True, False),
        ("layers 11", "block", "absent"),
        ("final_norm", "layernorm", "rmsnorm"),
    ]


def test_two_stacks_and_kinds():
    t5, gpt2 = spec.preset("t5"), spec.preset("gpt2")
    assert spec.differences(t5, gpt2) == [("kind", "encoder_decoder", "decoder")]
    without = t5.replace(decoder=t5.decoder.replace(final_norm=spec.NoNorm()))
    assert spec.differences(t5, without) == [("decoder.final_norm", "rmsnorm", "none")]


def test_numbers_within_the_tolerance_are_equal():
    gpt2 = spec.preset("gpt2")
    nearly = gpt2.replace(final_norm=spec.LayerNorm(eps=1.00000003e-5))
    assert spec.differences(gpt2, nearly) == [("final_norm.eps", 1e-5, 1.00000003e-5)]
    assert spec.differences(gpt2, nearly, tolerance=1e-7) == []
