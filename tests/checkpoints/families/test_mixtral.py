"""Mixtral against transformers, both ways."""

from __future__ import annotations

import pytest
from transformers import MixtralConfig, MixtralForCausalLM, MixtralForSequenceClassification, MixtralModel

from cutaway.checkpoints import hf
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny


def config(**changes):
    return MixtralConfig(
        **{
            "vocab_size": 61, "hidden_size": 32, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
            "max_position_embeddings": 64,
        } | TOKENS | changes
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sliding_window": 5, "rms_norm_eps": 2e-3, "num_experts_per_tok": 3, "hidden_act": "gelu"},
        {"head_dim": 12, "num_key_value_heads": 4, "tie_word_embeddings": True, "num_local_experts": 5},
        {"num_experts_per_tok": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}, "attention_dropout": 0.1},
        {"output_router_logits": True, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.1},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(MixtralForCausalLM, config(**changes), tmp_path)


@pytest.mark.parametrize("model_class", [MixtralModel, MixtralForSequenceClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, config(num_labels=3), tmp_path)


def test_fused_experts_of_newer_files(tmp_path):
    folder = tiny(MixtralForCausalLM, config(), tmp_path, save_original_format=False)
    names = hf.open_weights(folder).names()
    assert "model.layers.0.mlp.experts.gate_up_proj" in names
    same_logits(folder)


def test_configurations_of_version_4(tmp_path):
    folder = tiny(MixtralForCausalLM, config(), tmp_path)
    same_logits(rewrite(folder, drop=("rope_parameters",), rope_theta=500.0, rope_scaling=None))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 9}, "config.json.*9 of 4 experts"),
        ({"sliding_window": 0}, "config.json: SlidingMask.window: should be greater than or equal to 1, got 0"),
        ({"sliding_window": [3]}, "SlidingMask.window: should be a valid integer"),
        ({"num_attention_heads": 0}, "config.json: a value in it cannot be used"),
        ({"expert_capacity": 2}, "expert_capacity not understood"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq' are not read"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(MixtralForCausalLM, config(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder).load()
