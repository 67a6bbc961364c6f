"""Phi against transformers."""

from __future__ import annotations

import pytest
from transformers import PhiConfig, PhiForCausalLM, PhiForSequenceClassification, PhiForTokenClassification, PhiModel

from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 56,
    "max_position_embeddings": 48,
} | TOKENS  # fmt: skip


def rope(**changes):
    return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_parameters": rope(partial_rotary_factor=1.0)},
        {"qk_layernorm": True, "num_key_value_heads": 2, "rope_parameters": rope(partial_rotary_factor=0.4)},
        {"hidden_size": 64, "rope_parameters": rope(partial_rotary_factor=0.4, rope_theta=500.0), "hidden_act": "relu"},
        {"tie_word_embeddings": True, "layer_norm_eps": 3e-3, "embd_pdrop": 0.1, "resid_pdrop": 0.2},
        {"num_key_value_heads": 1, "rope_parameters": rope(rope_type="linear", factor=4.0)},
        {"head_dim": 16},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(PhiForCausalLM, PhiConfig(**SIZES | changes), tmp_path)


@pytest.mark.parametrize("model_class", [PhiModel, PhiForSequenceClassification, PhiForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, PhiConfig(**SIZES, num_labels=3), tmp_path)


def test_older_layouts_of_the_file(tmp_path):
    folder = tiny(PhiForCausalLM, PhiConfig(**SIZES), tmp_path)
    same_logits(rewrite(folder, ("rope_parameters",), rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.5))
    same_logits(rewrite(folder, ("rope_theta", "partial_rotary_factor", "rope_scaling", "num_key_value_heads")))
