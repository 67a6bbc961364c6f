"""BLOOM against transformers."""

from __future__ import annotations

import pytest
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    BloomForSequenceClassification,
    BloomForTokenClassification,
    BloomModel,
)

from cutaway.checkpoints import hf
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {"vocab_size": 61, "hidden_size": 48, "n_layer": 2, "n_head": 4} | TOKENS


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"apply_residual_connection_post_layernorm": True, "n_head": 6},
        {"n_head": 16, "layer_norm_epsilon": 3e-3, "hidden_dropout": 0.1, "attention_dropout": 0.2},
        {"n_head": 12, "tie_word_embeddings": False, "pretraining_tp": 2},
        {"n_head": 3, "slow_but_exact": True},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(BloomForCausalLM, BloomConfig(**SIZES | changes), tmp_path)


@pytest.mark.parametrize("model_class", [BloomModel, BloomForSequenceClassification, BloomForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, BloomConfig(**SIZES, num_labels=3), tmp_path)


def test_files_of_2022(tmp_path):
    folder = tiny(BloomForCausalLM, BloomConfig(**SIZES), tmp_path)
    old = {
        "n_embed": 48, "num_attention_heads": 4, "attention_softmax_in_fp32": True, "bias_dropout_fusion": True,
        "masked_softmax_fusion": True, "offset_alibi": 100, "seq_length": 2048, "skip_bias_add": True,
        "skip_bias_add_qkv": False,
    }  # fmt: skip
    same_logits(rewrite(folder, ("hidden_size", "n_head", "tie_word_embeddings"), **old))
    with pytest.raises(CheckpointError, match="hidden_size is 32 and n_embed is 48"):
        hf.read_spec(rewrite(folder, hidden_size=32))


def test_the_peer_drops_biases_when_it_is_slow_but_exact(tmp_path):
    folder = tiny(BloomForCausalLM, BloomConfig(**SIZES, slow_but_exact=True, pretraining_tp=2), tmp_path)
    with pytest.raises(CheckpointError, match="slow_but_exact"):
        open_checkpoint(folder).load()
