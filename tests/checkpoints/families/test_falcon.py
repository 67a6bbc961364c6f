"""Falcon against transformers: every combination of its switches that describes a block."""

from __future__ import annotations

import itertools

import pytest
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    FalconForSequenceClassification,
    FalconForTokenClassification,
    FalconModel,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, round_trip, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 48,
} | TOKENS  # fmt: skip
NEW = [
    {"new_decoder_architecture": True, "num_kv_heads": heads, "num_ln_in_parallel_attn": norms}
    for heads, norms in ((2, None), (1, 2), (None, 2), (2, 1), (4, 1), (1, 1))
]
OLD = [{"multi_query": one, "parallel_attn": beside} for one, beside in itertools.product((True, False), repeat=2)]


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("changes", NEW + OLD)
def test_each_block_equals_the_peer_both_ways(changes, alibi, tmp_path):
    folder = tiny(FalconForCausalLM, FalconConfig(**SIZES | changes, alibi=alibi, bias=alibi), tmp_path / "in")
    same_logits(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"bias": True, "activation": "gelu_new", "ffn_hidden_size": 40, "layer_norm_epsilon": 3e-3},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "tie_word_embeddings": False},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, "hidden_dropout": 0.1},
        {"alibi": True, "num_attention_heads": 16, "multi_query": False, "parallel_attn": False, "num_kv_heads": 16},
        {"alibi": True, "num_attention_heads": 6, "attention_dropout": 0.1},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(FalconForCausalLM, FalconConfig(**SIZES | changes), tmp_path)


@pytest.mark.parametrize("model_class", [FalconModel, FalconForSequenceClassification, FalconForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, FalconConfig(**SIZES, num_labels=3), tmp_path)


def test_files_of_2023(tmp_path):
    folder = tiny(FalconForCausalLM, FalconConfig(**SIZES), tmp_path)
    late = ("rope_parameters", "ffn_hidden_size", "activation", "num_ln_in_parallel_attn", "max_position_embeddings")
    same_logits(rewrite(folder, late, apply_residual_connection_post_layernorm=False, num_kv_heads=71))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"new_decoder_architecture": True, "parallel_attn": False}, "describe no block"),
        ({"num_ln_in_parallel_attn": 2}, "describe no block"),
        ({"new_decoder_architecture": True, "num_ln_in_parallel_attn": 3}, "describe no block"),
        ({"multi_query": False, "num_kv_heads": 2}, "num_kv_heads is 2"),
        ({"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(FalconForCausalLM, FalconConfig(**SIZES), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
