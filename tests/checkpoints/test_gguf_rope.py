"""Rotary settings in GGUF: what is written is read back, and what cannot be read is not passed over."""

from __future__ import annotations

import pytest

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.gguf_decoders import read_rope
from cutaway.checkpoints.gguf_keys import rope_keys
from cutaway.errors import CheckpointError

SHORT, LONG = (1.0, 1.5, 2.0, 4.0), (2.0, 3.0, 4.0, 8.0)
DIVIDED = {"factor": 1.0, "original_length": 32, "attention_factor": 1.19}


def read(**keys):
    config = Config({"context_length": 64, **keys}, "here")
    rope = read_rope(config, 8)
    config.finish()
    return rope


@pytest.mark.parametrize(
    "scaling",
    [
        spec.NoScaling(),
        spec.LinearScaling(factor=4.0),
        spec.YarnScaling(factor=4.0, original_length=16),
        spec.YarnScaling(factor=4.0, original_length=16, beta_fast=16.0, beta_slow=2.0),
        spec.LongRopeScaling(short_factors=SHORT, long_factors=LONG, **DIVIDED),
        spec.LongRopeScaling(
            short_factors=SHORT, long_factors=SHORT, **DIVIDED | dict(original_length=64, attention_factor=1.0)
        ),
    ],
)
@pytest.mark.parametrize("rotary_dim", ["head", 4])
def test_written_is_read(scaling, rotary_dim):
    rope = spec.RoPE(base=5e5, rotary_dim=rotary_dim, layout="halves", scaling=scaling)
    assert read(**rope_keys(rope, 8)) == rope


def test_a_factor_beside_yarns_own_is_kept():
    rope = spec.RoPE(scaling=spec.YarnScaling(factor=4.0, original_length=16, attention_factor=1.5), layout="halves")
    keys = rope_keys(rope, 8)
    assert keys["rope.scaling.attn_factor"] == pytest.approx(1.5 / 1.138629436)
    assert read(**keys).scaling.attention_factor == pytest.approx(1.5)


@pytest.mark.parametrize("kind", ["longrope", "ntk"])
def test_scaling_that_cannot_be_read_is_an_error(kind):
    with pytest.raises(CheckpointError, match=f"rope.scaling.type is '{kind}'|type '{kind}' cannot be read"):
        read(**{"rope.scaling.type": kind, "rope.scaling.factor": 4.0})
