"""StableLM against transformers, the norm of each head among its switches."""

from __future__ import annotations

import pytest
from transformers import (
    StableLmConfig,
    StableLmForCausalLM,
    StableLmForSequenceClassification,
    StableLmForTokenClassification,
    StableLmModel,
)

from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 56,
    "max_position_embeddings": 48, "num_key_value_heads": 4,
} | TOKENS  # fmt: skip
PER_HEAD = {"qk_layernorm": True, "num_key_value_heads": 2}


def rope(**changes):
    return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_parameters": rope(partial_rotary_factor=1.0)},
        {**PER_HEAD, "use_parallel_residual": True, "rope_parameters": rope(partial_rotary_factor=0.5)},
        {**PER_HEAD, "use_qkv_bias": True, "num_attention_heads": 8, "layer_norm_eps": 3e-3},
        {"use_parallel_residual": True, "tie_word_embeddings": True, "hidden_act": "gelu", "hidden_dropout": 0.1},
        {"rope_parameters": rope(rope_theta=500.0, rope_type="dynamic", factor=2.0), "num_key_value_heads": 1},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(StableLmForCausalLM, StableLmConfig(**SIZES | changes), tmp_path)


@pytest.mark.parametrize(
    "model_class", [StableLmModel, StableLmForSequenceClassification, StableLmForTokenClassification]
)
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, StableLmConfig(**SIZES | PER_HEAD, num_labels=3), tmp_path)


def test_older_layouts_of_the_file(tmp_path):
    folder = tiny(StableLmForCausalLM, StableLmConfig(**SIZES), tmp_path)
    drop = ("rope_parameters", "qk_layernorm", "use_parallel_residual")
    same_logits(rewrite(folder, drop, rope_theta=10000, partial_rotary_factor=0.25, rope_scaling=None))


def test_a_norm_that_a_head_lacks_is_named(tmp_path):
    folder = tiny(StableLmForCausalLM, StableLmConfig(**SIZES | PER_HEAD), tmp_path)
    with pytest.raises(CheckpointError, match=r"the configuration asks for|cannot become"):
        open_checkpoint(rewrite(folder, num_key_value_heads=4)).load()
