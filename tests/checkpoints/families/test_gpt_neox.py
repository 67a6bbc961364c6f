"""GPT-NeoX against transformers: parallel and sequential blocks, parts of a head that turn, both layouts of a file."""

from __future__ import annotations

import pytest
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GPTNeoXForSequenceClassification,
    GPTNeoXForTokenClassification,
    GPTNeoXModel,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 56,
    "max_position_embeddings": 48,
} | TOKENS  # fmt: skip


def rope(**changes):
    return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rope_parameters": rope(partial_rotary_factor=0.5, rope_theta=500.0), "hidden_act": "gelu_new"},
        {"rope_parameters": rope(partial_rotary_factor=1.0), "use_parallel_residual": False},
        {"attention_bias": False, "tie_word_embeddings": True, "layer_norm_eps": 3e-3, "hidden_dropout": 0.1},
        {"rope_parameters": rope(partial_rotary_factor=0.5, rope_type="linear", factor=4.0)},
        {"rope_parameters": rope(partial_rotary_factor=0.5, rope_type="dynamic", factor=2.0)},
        {"rope_parameters": rope(rope_type="yarn", factor=4.0, partial_rotary_factor=0.5)},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(GPTNeoXForCausalLM, GPTNeoXConfig(**SIZES | changes), tmp_path)


@pytest.mark.parametrize("model_class", [GPTNeoXModel, GPTNeoXForSequenceClassification, GPTNeoXForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, GPTNeoXConfig(**SIZES, num_labels=3), tmp_path)


def test_older_layouts_of_the_file(tmp_path):
    settings = {"rope_parameters": rope(partial_rotary_factor=0.5, rope_theta=500.0)}
    folder = tiny(GPTNeoXForCausalLM, GPTNeoXConfig(**SIZES | settings), tmp_path)
    rewrite(folder, ("rope_parameters",), rotary_pct=0.5, rotary_emb_base=500, rope_scaling=None)
    same_logits(folder)
    rewrite(folder, rope_theta=500.0, partial_rotary_factor=0.5, attention_probs_dropout_prob=0)
    same_logits(folder)
    with pytest.raises(CheckpointError, match="rope_theta is 100.0 and rotary_emb_base is 500"):
        hf.read_spec(rewrite(folder, rope_theta=100.0))
