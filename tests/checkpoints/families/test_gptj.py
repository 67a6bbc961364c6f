"""GPT-J and CodeGen against transformers."""

from __future__ import annotations

import pytest
from transformers import (
    CodeGenConfig,
    CodeGenForCausalLM,
    CodeGenModel,
    GPTJConfig,
    GPTJForCausalLM,
    GPTJForSequenceClassification,
    GPTJModel,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48, "rotary_dim": 4} | TOKENS


@pytest.mark.parametrize(
    ("config_class", "model_class", "changes"),
    [
        (GPTJConfig, GPTJForCausalLM, {}),
        (GPTJConfig, GPTJForCausalLM, {"rotary_dim": 8, "n_inner": 40, "activation_function": "relu"}),
        (GPTJConfig, GPTJForCausalLM, {"rotary_dim": 6, "tie_word_embeddings": True, "layer_norm_epsilon": 3e-3}),
        (CodeGenConfig, CodeGenForCausalLM, {}),
        (CodeGenConfig, CodeGenForCausalLM, {"n_head": 8, "n_inner": 40, "resid_pdrop": 0.1, "rotary_dim": 2}),
    ],
)
def test_equals_the_peer_both_ways(config_class, model_class, changes, tmp_path):
    both_ways(model_class, config_class(**SIZES | changes), tmp_path)


@pytest.mark.parametrize(
    ("config_class", "model_class"),
    [(GPTJConfig, GPTJModel), (GPTJConfig, GPTJForSequenceClassification), (CodeGenConfig, CodeGenModel)],
)
def test_other_heads(config_class, model_class, tmp_path):
    both_ways(model_class, config_class(**SIZES, num_labels=3), tmp_path)


def test_keys_of_the_first_file(tmp_path):
    folder = tiny(GPTJForCausalLM, GPTJConfig(**SIZES), tmp_path)
    old = {"rotary": True, "scale_attn_weights": True, "gradient_checkpointing": False, "summary_use_proj": True}
    same_logits(rewrite(folder, **old))
    with pytest.raises(CheckpointError, match="rotary is False"):
        hf.read_spec(rewrite(folder, rotary=False))
