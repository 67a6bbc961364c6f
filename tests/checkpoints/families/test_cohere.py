"""Command R and Command R7B against transformers, and the way back out."""

from __future__ import annotations

import pytest
from transformers import Cohere2Config, Cohere2ForCausalLM, Cohere2Model, CohereConfig, CohereForCausalLM

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_qk_norm": True, "logit_scale": 0.3, "layer_norm_eps": 2e-3},
        {"use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False, "num_key_value_heads": None},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 2.0}},
    ],
)
def test_cohere_both_ways(changes, tmp_path):
    both_ways(CohereForCausalLM, CohereConfig(**SMALL | changes), tmp_path)
    same_spec_when_older(tmp_path / "in", model_max_length=4096)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 6},
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "attention_bias": True},
        {"logit_scale": 0.7, "layer_norm_eps": 2e-3, "tie_word_embeddings": False},
        {"layer_types": ["full_attention"] * 3},
    ],
)
def test_cohere2_both_ways(changes, tmp_path):
    both_ways(Cohere2ForCausalLM, Cohere2Config(**SMALL | {"sliding_window": 5} | changes), tmp_path)
    same_spec_when_older(tmp_path / "in", order_of_interleaved_layers="local_attn_first", use_gated_activation=True)


def test_cohere2_by_pattern(tmp_path):
    config = Cohere2Config(**SMALL, sliding_window=5, sliding_window_pattern=2)
    folder = tiny(Cohere2ForCausalLM, config, tmp_path)
    same_spec_when_older(folder, ("layer_types",), sliding_window_pattern=2)


def test_a_model_without_a_head(tmp_path):
    both_ways(Cohere2Model, Cohere2Config(**SMALL, sliding_window=5), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_qk_norm": True}, "use_qk_norm is True"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type is 'alibi'"),
        ({"logit_scale": "big"}, "logit_scale is 'big'"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(Cohere2ForCausalLM, Cohere2Config(**SMALL, sliding_window=5), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
