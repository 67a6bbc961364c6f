"""OLMoE against transformers, both ways."""

from __future__ import annotations

import pytest
from transformers import OlmoeConfig, OlmoeForCausalLM, OlmoeModel

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny


def config(**changes):
    return OlmoeConfig(
        **{
            "vocab_size": 61, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_experts": 6, "num_experts_per_tok": 2, "max_position_embeddings": 64,
        } | TOKENS | changes
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 2, "clip_qkv": 0.4, "norm_topk_prob": True, "rms_norm_eps": 2e-3},
        {"attention_bias": True, "tie_word_embeddings": True, "num_experts_per_tok": 6, "hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}, "num_key_value_heads": 1},
        {"output_router_logits": True, "router_aux_loss_coef": 0.01},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(OlmoeForCausalLM, config(**changes), tmp_path)


def test_without_a_head(tmp_path):
    both_ways(OlmoeModel, config(), tmp_path)


def test_fused_experts_of_newer_files(tmp_path):
    folder = tiny(OlmoeForCausalLM, config(), tmp_path, save_original_format=False)
    assert "model.layers.1.mlp.experts.down_proj" in hf.open_weights(folder).names()
    same_logits(folder)


@pytest.mark.parametrize(
    ("changes", "message"), [({"head_dim": 12}, "head_dim is 12"), ({"clip_qkv": -1.0}, "MultiHead.clip")]
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(OlmoeForCausalLM, config(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
