"""OLMo, OLMo 2 and OLMo 3 against transformers, and the way back out."""

from __future__ import annotations

import pytest
from transformers import (
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo2ForSequenceClassification,
    Olmo3Config,
    Olmo3ForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    OlmoModel,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny

TYPES = ["full_attention", "sliding_attention", "full_attention"]
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "changes", [{}, {"clip_qkv": 0.4, "attention_bias": True}, {"tie_word_embeddings": True, "rope_parameters": LLAMA3}]
)
def test_olmo_both_ways(changes, tmp_path):
    both_ways(OlmoForCausalLM, OlmoConfig(**SMALL | changes), tmp_path)
    same_spec_when_older(tmp_path / "in")


@pytest.mark.parametrize(
    "changes", [{}, {"attention_bias": True, "rms_norm_eps": 2e-3, "num_key_value_heads": None, "hidden_act": "gelu"}]
)
def test_olmo2_both_ways(changes, tmp_path):
    both_ways(Olmo2ForCausalLM, Olmo2Config(**SMALL | changes), tmp_path)
    same_spec_when_older(tmp_path / "in")


ROPES = {
    "full_attention": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16},
    "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 5},
        {"layer_types": TYPES, "rope_parameters": ROPES, "attention_bias": True},
        {"layer_types": ["full_attention"] * 3, "tie_word_embeddings": True},
    ],
)
def test_olmo3_both_ways(changes, tmp_path):
    both_ways(Olmo3ForCausalLM, Olmo3Config(**SMALL | {"sliding_window": 5} | changes), tmp_path)


def test_olmo3_in_the_older_layout(tmp_path):
    ropes = ROPES | {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}
    config = Olmo3Config(**SMALL | {"num_hidden_layers": 4}, sliding_window=5, rope_parameters=ropes)
    folder = tiny(Olmo3ForCausalLM, config, tmp_path)
    record = hf.read_spec(folder)[0]
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    rewrite(folder, ("rope_parameters", "layer_types"), rope_theta=500.0, rope_scaling=scaling)
    assert hf.read_spec(folder)[0] == record


@pytest.mark.parametrize(
    ("model_class", "config_class"), [(OlmoModel, OlmoConfig), (Olmo2ForSequenceClassification, Olmo2Config)]
)
def test_other_heads(model_class, config_class, tmp_path):
    both_ways(model_class, config_class(**SMALL, num_labels=3), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"clip_qkv": "8"}, "clip_qkv is '8'"), ({"rms_norm_eps": 1e-5}, "rms_norm_eps not understood")],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(OlmoForCausalLM, OlmoConfig(**SMALL), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
