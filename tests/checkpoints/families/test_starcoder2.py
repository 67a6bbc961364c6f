"""StarCoder2 against transformers, with a window and without."""

from __future__ import annotations

import pytest
from transformers import Starcoder2Config, Starcoder2ForCausalLM, Starcoder2ForSequenceClassification, Starcoder2Model

from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 56, "max_position_embeddings": 48,
} | TOKENS  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sliding_window": 5, "use_bias": False, "norm_epsilon": 3e-3},
        {"sliding_window": 64, "tie_word_embeddings": False, "hidden_act": "relu", "num_key_value_heads": 1},
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}, "residual_dropout": 0.1},
        {"head_dim": 16, "embedding_dropout": 0.1},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(Starcoder2ForCausalLM, Starcoder2Config(**SIZES | changes), tmp_path)


@pytest.mark.parametrize("model_class", [Starcoder2Model, Starcoder2ForSequenceClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, Starcoder2Config(**SIZES, num_labels=3), tmp_path)


def test_older_layouts_of_the_file(tmp_path):
    settings = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "sliding_window": 5}
    folder = tiny(Starcoder2ForCausalLM, Starcoder2Config(**SIZES | settings), tmp_path)
    old = {"norm_type": "layer_norm", "mlp_type": "default", "rope_theta": 500.0, "rope_scaling": None}
    same_logits(rewrite(folder, ("rope_parameters",), **old))
