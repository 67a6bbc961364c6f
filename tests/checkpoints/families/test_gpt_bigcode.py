"""GPT-BigCode against transformers, with and without the shared key head."""

from __future__ import annotations

import pytest
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM, GPTBigCodeForSequenceClassification, GPTBigCodeModel

from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny


def config(**changes):
    sizes = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48}
    return GPTBigCodeConfig(**sizes | TOKENS | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"multi_query": False, "activation_function": "relu"},
        {"scale_attn_weights": False, "n_inner": 40, "tie_word_embeddings": False, "layer_norm_epsilon": 3e-3},
        {"attention_softmax_in_fp32": False, "scale_attention_softmax_in_fp32": False},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(GPTBigCodeForCausalLM, config(**changes), tmp_path)


@pytest.mark.parametrize("model_class", [GPTBigCodeModel, GPTBigCodeForSequenceClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, config(num_labels=3), tmp_path)


def test_keys_of_other_programs(tmp_path):
    folder = tiny(GPTBigCodeForCausalLM, config(), tmp_path)
    same_logits(rewrite(folder, inference_runner=0, max_batch_size=None, pad_key_length=True, summary_type="cls_index"))
