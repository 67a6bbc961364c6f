"""MPT against transformers, which reads less of the configuration than the first authors did."""

from __future__ import annotations

import json

import pytest
from transformers import MptConfig, MptForCausalLM, MptForSequenceClassification, MptForTokenClassification, MptModel

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {"vocab_size": 61, "d_model": 48, "n_layers": 2, "n_heads": 4, "max_seq_len": 48} | TOKENS


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        ({}, {}),
        ({"n_heads": 6}, {"softmax_scale": 0.4, "clip_qkv": 0.5}),
        ({"n_heads": 16, "layer_norm_epsilon": 3e-3, "tie_word_embeddings": False}, {"attn_pdrop": 0}),
        ({"n_heads": 12, "expansion_ratio": 2, "no_bias": False, "learned_pos_emb": False}, {"attn_impl": "flash"}),
    ],
)
def test_equals_the_peer_both_ways(changes, attention, tmp_path):
    both_ways(MptForCausalLM, MptConfig(**SIZES | changes, attn_config=attention), tmp_path)


@pytest.mark.parametrize("model_class", [MptModel, MptForSequenceClassification, MptForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, MptConfig(**SIZES, num_labels=3), tmp_path)


def test_keys_of_the_first_file(tmp_path):
    folder = tiny(MptForCausalLM, MptConfig(**SIZES), tmp_path)
    old = {"init_config": {"name": "kaiming_normal_"}, "tokenizer_name": "x", "verbose": 0, "auto_map": {}}
    same_logits(rewrite(folder, **old, architectures=["MptForCausalLM"]))


@pytest.mark.parametrize(
    ("changes", "attention", "message"),
    [
        ({"logit_scale": "inv_sqrt_d_model"}, {}, "logit_scale"),
        ({"norm_type": "rmsnorm"}, {}, "norm_type"),
        ({}, {"alibi": False}, "attn_config: alibi is False"),
        ({}, {"alibi_bias_max": 16}, "alibi_bias_max is 16"),
        ({}, {"qk_ln": True}, "qk_ln"),
        ({}, {"prefix_lm": True}, "prefix_lm"),
        ({}, {"attn_type": "multiquery_attention"}, "attn_type"),
        ({}, {"strange": 1}, "attn_config: strange not understood"),
    ],
)
def test_what_is_refused(changes, attention, message, tmp_path):
    folder = tiny(MptForCausalLM, MptConfig(**SIZES), tmp_path)
    table = json.loads((folder / "config.json").read_text())["attn_config"]
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(rewrite(folder, **changes, attn_config=table | attention))
