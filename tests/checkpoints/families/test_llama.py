"""Llama and SmolLM3 against transformers: every rope scaling, biases, heads, both layouts, and the way back out."""

from __future__ import annotations

import pytest
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    LlamaModel,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.families.llama import to_config
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny

LONG = {"short_factor": [1.0, 1.2, 1.5, 1.9], "long_factor": [1.0, 2.0, 4.0, 7.0]}
SCALINGS = {
    "default": {},
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 16},
    "yarn_explicit": {"factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.3, "beta_fast": 8.0},
    "yarn_mscale": {"factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 1.0},
    "yarn_kept_whole": {"factor": 4.0, "original_max_position_embeddings": 16, "truncate": False},
    "yarn_no_factor": {"factor": None, "original_max_position_embeddings": 16},
    "llama3": {
        "factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
    "longrope": {"original_max_position_embeddings": 32, **LONG},
    "longrope_factor": {"original_max_position_embeddings": 32, "factor": 3.0, **LONG},
    "longrope_explicit": {"original_max_position_embeddings": 32, "attention_factor": 1.2, **LONG},
}  # fmt: skip


def config(**changes):
    return LlamaConfig(**SMALL | changes)


def rope(name, theta=500.0):
    return {"rope_type": name.split("_")[0], "rope_theta": theta} | SCALINGS[name]


@pytest.mark.parametrize("name", SCALINGS)
def test_every_scaling(name, tmp_path):
    both_ways(LlamaForCausalLM, config(rope_parameters=rope(name)), tmp_path)
    same_spec_when_older(tmp_path / "in")


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True, "tie_word_embeddings": True},
        {"mlp_bias": True, "head_dim": 12, "hidden_act": "gelu_pytorch_tanh"},
        {"num_key_value_heads": None, "rms_norm_eps": 2e-3, "attention_dropout": 0.1, "hidden_act": "relu"},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0, "partial_rotary_factor": 1.0}},
        {"num_hidden_layers": 1, "num_key_value_heads": 1},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(LlamaForCausalLM, config(**changes), tmp_path)


@pytest.mark.parametrize("model_class", [LlamaModel, LlamaForSequenceClassification, LlamaForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, config(num_labels=3), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"no_rope_layer_interval": 2, "attention_bias": True},
        {"no_rope_layers": [1, 0, 0], "use_sliding_window": True, "sliding_window": 5, "mlp_bias": True},
        {"no_rope_layers": [1, 1, 1], "tie_word_embeddings": False},
        {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "use_sliding_window": True,
         "sliding_window": 5, "rope_parameters": rope("yarn")},
    ],
)  # fmt: skip
def test_smollm3_both_ways(changes, tmp_path):
    both_ways(SmolLM3ForCausalLM, SmolLM3Config(**SMALL | changes), tmp_path)


def test_smollm3_without_lists_of_layers(tmp_path):
    changes = {"use_sliding_window": True, "sliding_window": 5, "no_rope_layer_interval": 2}
    folder = tiny(SmolLM3ForCausalLM, SmolLM3Config(**SMALL | changes), tmp_path)
    same_spec_when_older(folder, ("no_rope_layers", "layer_types"))
    parts = [block.branches[0].part for block in hf.read_spec(folder)[0].blocks]
    assert [part.positions.kind for part in parts] == ["rope", "none", "rope"]
    assert [part.mask.kind for part in parts] == ["causal", "sliding", "causal"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"type": "proportional"}, "rope_parameters": None}, "rope type 'proportional' is not known"),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is missing"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "3"}}, "factor is '3', expected a number"),
        ({"rope_parameters": {"rope_type": "default", "attention_factor": 2.0}}, "attention_factor not understood"),
        ({"rope_parameters": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}, "type is 'yarn'"),
        ({"rope_parameters": [1]}, "expected a table"),
        ({"rope_theta": 7.0}, "rope_theta is 7.0"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is"),
        ({"rope_parameters": {"rope_type": "longrope", "short_factor": [1], "long_factor": "x"}}, "list of numbers"),
        ({"rope_interleaved": True}, "rope_interleaved is True"),
        ({"architectures": ["LlamaForQuestionAnswering"]}, "LlamaForQuestionAnswering"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types not understood"),
        ({"quantization_config": {"bits": 4}}, "weights packed by None are not read"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(LlamaForCausalLM, config(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"no_rope_layers": [1, 2, 0]}, "no_rope_layers is"),
        ({"layer_types": ["sliding_attention"] * 3}, "use_sliding_window is off"),
        ({"layer_types": ["full_attention"]}, "expected 3 words"),
        ({"layer_types": ["linear_attention"] * 3}, "expected 3 words"),
    ],
)
def test_what_smollm3_refuses(changes, message, tmp_path):
    folder = rewrite(tiny(SmolLM3ForCausalLM, SmolLM3Config(**SMALL), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"final_norm": spec.NoNorm()}, "without a final norm"),
        (
            {"layers": (spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=spec.NoAttention()),)),)),)},
            "only a stack",
        ),
    ],
)
def test_a_spec_that_does_not_fit_is_refused(change, message):
    with pytest.raises(CheckpointError, match=message):
        to_config(spec.preset("llama-tiny").replace(**change))
