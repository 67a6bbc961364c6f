"""Mistral and Ministral against transformers, and the way back out."""

from __future__ import annotations

import pytest
from transformers import MinistralConfig, MinistralForCausalLM, MistralConfig, MistralForCausalLM, MistralModel

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny

YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 5},
        {"sliding_window": None, "head_dim": 12, "tie_word_embeddings": True},
        {"sliding_window": 2, "rope_parameters": YARN, "num_key_value_heads": 4},
    ],
)
def test_mistral_both_ways(changes, tmp_path):
    both_ways(MistralForCausalLM, MistralConfig(**SMALL | changes), tmp_path)
    same_spec_when_older(tmp_path / "in")


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 5},
        {"sliding_window": 5, "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        {"sliding_window": 5, "layer_types": ["full_attention"] * 3, "hidden_act": "gelu"},
    ],
)
def test_ministral_both_ways(changes, tmp_path):
    rope = {"rope_type": "default", "rope_theta": 500.0}
    both_ways(MinistralForCausalLM, MinistralConfig(**SMALL | changes, head_dim=8, rope_parameters=rope), tmp_path)


def test_a_model_without_a_head(tmp_path):
    both_ways(MistralModel, MistralConfig(**SMALL, sliding_window=5), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention"] * 3}, "layer_types is"),
        ({"sliding_window": "wide"}, "sliding_window is 'wide'"),
        ({"attention_bias": True}, "attention_bias .*not understood"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(MistralForCausalLM, MistralConfig(**SMALL, sliding_window=5), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
    with pytest.raises(CheckpointError, match="sliding_window is missing"):
        hf.read_spec(rewrite(folder, ("sliding_window", *changes)))
