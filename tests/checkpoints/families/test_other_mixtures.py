"""GraniteMoe, GLM-4.5 and ERNIE 4.5 with experts against transformers, both ways."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file
from transformers import (
    Ernie4_5_MoeConfig,
    Ernie4_5_MoeForCausalLM,
    Ernie4_5_MoeModel,
    Glm4MoeConfig,
    Glm4MoeForCausalLM,
    Glm4MoeModel,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    GraniteMoeModel,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64,
} | TOKENS  # fmt: skip


def granite(**changes):
    small = {"intermediate_size": 12, "num_local_experts": 5, "num_experts_per_tok": 2, "logits_scaling": 1.5}
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.2}
    return GraniteMoeConfig(**SIZES | small | factors | changes)


def glm(**changes):
    small = {
        "intermediate_size": 40, "moe_intermediate_size": 12, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "head_dim": 8,
    }  # fmt: skip
    return Glm4MoeConfig(**SIZES | small | changes)


def ernie(**changes):
    small = {"intermediate_size": 40, "moe_intermediate_size": 12, "moe_num_experts": 6, "moe_k": 2, "pad_token_id": 0}
    return Ernie4_5_MoeConfig(**SIZES | small | changes)


CASES = [
    (GraniteMoeForCausalLM, granite()),
    (
        GraniteMoeForCausalLM,
        granite(attention_bias=True, tie_word_embeddings=True, rms_norm_eps=2e-3, hidden_act="gelu"),
    ),
    (GraniteMoeForCausalLM, granite(attention_multiplier=8**-0.5, output_router_logits=True, num_experts_per_tok=1)),
    (Glm4MoeForCausalLM, glm()),
    (
        Glm4MoeForCausalLM,
        glm(use_qk_norm=True, attention_bias=True, routed_scaling_factor=2.5, first_k_dense_replace=0),
    ),
    (Glm4MoeForCausalLM, glm(n_group=4, topk_group=2, norm_topk_prob=False, n_shared_experts=2, rms_norm_eps=2e-3)),
    (
        Glm4MoeForCausalLM,
        glm(rope_parameters={"rope_theta": 500.0, "rope_type": "default", "partial_rotary_factor": 1.0}),
    ),
    (Ernie4_5_MoeForCausalLM, ernie()),
    (Ernie4_5_MoeForCausalLM, ernie(use_bias=True, tie_word_embeddings=False, moe_num_shared_experts=0)),
    (Ernie4_5_MoeForCausalLM, ernie(use_bias=True, moe_layer_start_index=0, moe_layer_interval=2, head_dim=10)),
    (Ernie4_5_MoeForCausalLM, ernie(num_hidden_layers=5, moe_layer_end_index=3, moe_num_shared_experts=1)),
]


@pytest.mark.parametrize(("model_class", "config"), CASES)
def test_equals_the_peer_both_ways(model_class, config, tmp_path):
    both_ways(model_class, config, tmp_path)


@pytest.mark.parametrize(
    ("model_class", "config"), [(GraniteMoeModel, granite()), (Glm4MoeModel, glm()), (Ernie4_5_MoeModel, ernie())]
)
def test_without_a_head(model_class, config, tmp_path):
    both_ways(model_class, config, tmp_path)


@pytest.mark.parametrize("model_class", [GraniteMoeForCausalLM, Glm4MoeForCausalLM, Ernie4_5_MoeForCausalLM])
def test_names_of_the_classes(model_class, tmp_path):
    config = {GraniteMoeForCausalLM: granite, Glm4MoeForCausalLM: glm, Ernie4_5_MoeForCausalLM: ernie}[model_class]()
    folder = tiny(model_class, config, tmp_path, save_original_format=False)
    assert any(name.endswith("experts.gate_up_proj") for name in load_file(folder / "model.safetensors"))
    same_logits(folder)


def test_half_a_head_is_rotated_where_the_file_says_nothing(tmp_path):
    folder = tiny(Glm4MoeForCausalLM, glm(), tmp_path)
    rewrite(folder, drop=("rope_parameters",), rope_theta=10000.0, rope_scaling=None)
    assert same_logits(folder).spec.blocks[0].branches[0].part.positions.rotary_dim == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe_norm_min": 0.5}, "moe_norm_min is above"),
        ({"moe_gate": "top2_fused"}, "moe_gate is 'top2_fused'"),
        ({"moe_layer_interval": 0}, "cannot be used"),
        ({"moe_k": 7}, "7 of 6 experts"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(Ernie4_5_MoeForCausalLM, ernie(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
