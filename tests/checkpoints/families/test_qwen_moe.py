"""Qwen2-MoE and Qwen3-MoE against transformers, both ways."""

from __future__ import annotations

import pytest
from transformers import (
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen2MoeForTokenClassification,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3MoeForSequenceClassification,
)

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, round_trip, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "moe_intermediate_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
} | TOKENS  # fmt: skip


def qwen2(**changes):
    return Qwen2MoeConfig(**SIZES | {"shared_expert_intermediate_size": 20} | changes)


def qwen3(**changes):
    return Qwen3MoeConfig(**SIZES | {"head_dim": 10} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_topk_prob": True, "qkv_bias": False, "rms_norm_eps": 2e-3, "tie_word_embeddings": True},
        {"mlp_only_layers": [1], "hidden_act": "gelu", "num_experts_per_tok": 5},
        {"decoder_sparse_step": 2, "shared_expert_intermediate_size": 8},
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2},
        {
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["full_attention"] + ["sliding_attention"] * 2,
        },
        {"output_router_logits": True, "router_aux_loss_coef": 0.02, "attention_dropout": 0.1},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {"head_dim": 12, "num_key_value_heads": 4},
    ],
)
def test_the_second_generation_both_ways(changes, tmp_path):
    both_ways(Qwen2MoeForCausalLM, qwen2(**changes), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_topk_prob": True, "attention_bias": True, "rms_norm_eps": 2e-3, "tie_word_embeddings": True},
        {"mlp_only_layers": [0, 2], "num_experts_per_tok": 1},
        {"decoder_sparse_step": 3, "num_hidden_layers": 4, "hidden_act": "relu"},
        {"use_sliding_window": True, "sliding_window": 4},
        {"use_sliding_window": True, "sliding_window": None, "num_key_value_heads": 1},
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
    ],
)  # fmt: skip
def test_the_third_generation_both_ways(changes, tmp_path):
    both_ways(Qwen3MoeForCausalLM, qwen3(**changes), tmp_path)


def test_other_heads(tmp_path):
    for name, model_class, made in (
        ("tokens", Qwen2MoeForTokenClassification, qwen2), ("rows", Qwen3MoeForSequenceClassification, qwen3)
    ):  # fmt: skip
        folder = tiny(model_class, made(num_labels=3), tmp_path / name)
        same_logits(folder)
        round_trip(folder, tmp_path / f"{name}-out")


@pytest.mark.parametrize(("model_class", "made"), [(Qwen2MoeForCausalLM, qwen2), (Qwen3MoeForCausalLM, qwen3)])
def test_fused_experts_of_newer_files(model_class, made, tmp_path):
    folder = tiny(model_class, made(mlp_only_layers=[1]), tmp_path, save_original_format=False)
    assert "model.layers.0.mlp.experts.gate_up_proj" in hf.open_weights(folder).names()
    same_logits(folder)


def test_configurations_of_version_4(tmp_path):
    folder = tiny(Qwen3MoeForCausalLM, qwen3(), tmp_path / "in")
    rewrite(
        folder, drop=("rope_parameters", "mlp_only_layers"), rope_theta=500.0, rope_scaling=None, max_window_layers=48,
        sliding_window=None, use_sliding_window=False, norm_topk_prob=True,
    )  # fmt: skip
    assert same_logits(folder).spec.blocks[0].branches[0].part.positions.base == 500.0


def test_no_experts_at_all(tmp_path):
    folder = tiny(Qwen3MoeForCausalLM, qwen3(num_experts=0), tmp_path)
    model = same_logits(folder)
    assert {branch.part.kind for block in model.spec.blocks for branch in block.branches} == {"multi_head", "gated"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["sliding_attention"] * 3}, "sliding layers, but use_sliding_window is false"),
        ({"layer_types": ["full_attention"] * 2}, "expected 3 words"),
        ({"decoder_sparse_step": 0}, "cannot be used"),
        ({"norm_topk_prob": 1}, "norm_topk_prob is 1, expected true or false"),
        ({"shared_expert_gate": False}, "shared_expert_gate .near.*not understood"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(Qwen2MoeForCausalLM, qwen2(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)


def test_dense_layers_of_two_widths_do_not_come_back_equal(tmp_path):
    """What a configuration cannot say shows when the export is read again."""
    from cutaway.checkpoints.config import Config
    from cutaway.checkpoints.family import family_of

    family, (record, _) = family_of("qwen3_moe", "test"), hf.read_spec(tiny(Qwen3MoeForCausalLM, qwen3(), tmp_path))
    blocks = list(record.blocks)
    for index, width in ((0, 16), (2, 24)):
        attention, network = blocks[index].stages
        (branch,) = network.branches
        network = network.replace(branches=(branch.replace(part=spec.Gated(d_ff=width)),))
        blocks[index] = blocks[index].replace(stages=(attention, network))
    changed = record.replace(layers=tuple(blocks))
    assert family.to_spec(Config(family.to_config(changed), "written")).blocks != changed.blocks
