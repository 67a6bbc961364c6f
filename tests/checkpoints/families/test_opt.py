"""OPT against transformers: each of its variants, the narrow table of the 350M size among them."""

from __future__ import annotations

import pytest
from transformers import OPTConfig, OPTForCausalLM, OPTForSequenceClassification, OPTModel

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import (
    TOKENS,
    both_ways,
    rewrite,
    round_trip,
    same_logits,
    same_states,
    same_text,
    tiny,
)

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 40,
    "max_position_embeddings": 48, "word_embed_proj_dim": 32,
} | TOKENS  # fmt: skip
VARIANTS = [
    {},
    {"do_layer_norm_before": False, "word_embed_proj_dim": 20},
    {"do_layer_norm_before": False},
    {"word_embed_proj_dim": 20, "dropout": 0.0, "attention_dropout": 0.1},
    {"_remove_final_layer_norm": True},
    {"enable_bias": False, "layer_norm_elementwise_affine": False, "activation_function": "gelu"},
    {"enable_bias": False, "tie_word_embeddings": False, "num_hidden_layers": 1},
    {"layer_norm_elementwise_affine": False, "do_layer_norm_before": False, "word_embed_proj_dim": 40},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_equals_the_peer_both_ways(changes, tmp_path):
    folder = tiny(OPTForCausalLM, OPTConfig(**SIZES | changes), tmp_path / "in")
    same_logits(folder)
    same_states(folder)
    same_text(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("model_class", [OPTModel, OPTForSequenceClassification])
@pytest.mark.parametrize("changes", VARIANTS[:2])
def test_other_heads(model_class, changes, tmp_path):
    both_ways(model_class, OPTConfig(**SIZES | changes, num_labels=3), tmp_path)


def test_files_of_2022(tmp_path):
    folder = tiny(OPTForCausalLM, OPTConfig(**SIZES), tmp_path)
    late = ("enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings")
    rewrite(folder, late, activation_dropout=0.0, learned_embeddings=True, scale_embeddings=False, prefix="</s>")
    same_logits(folder)
    with pytest.raises(CheckpointError, match="scale_embeddings is True"):
        hf.read_spec(rewrite(folder, scale_embeddings=True))
