"""Qwen2 and Qwen3 against transformers: which layers slide, biases, norms on q and k, and the way back out."""

from __future__ import annotations

import pytest
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen2Model,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForTokenClassification,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny

YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16}
BOTH = [
    {},
    {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0, "tie_word_embeddings": True},
    {"use_sliding_window": False, "sliding_window": 5, "max_window_layers": 0, "rope_parameters": YARN},
    {"use_sliding_window": True, "sliding_window": 4,
     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    {"num_key_value_heads": None, "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 2e-3, "attention_dropout": 0.1},
]  # fmt: skip


@pytest.mark.parametrize("changes", BOTH)
def test_qwen2_both_ways(changes, tmp_path):
    both_ways(Qwen2ForCausalLM, Qwen2Config(**SMALL | changes), tmp_path)
    drop = () if "layer_types" in changes else ("layer_types",)
    same_spec_when_older(tmp_path / "in", drop, sliding_window=changes.get("sliding_window"))


@pytest.mark.parametrize("changes", [*BOTH, {"attention_bias": True, "head_dim": 12}, {"head_dim": 8}])
def test_qwen3_both_ways(changes, tmp_path):
    both_ways(Qwen3ForCausalLM, Qwen3Config(**SMALL | changes), tmp_path)
    same_spec_when_older(tmp_path / "in")


@pytest.mark.parametrize("model_class", [Qwen2Model, Qwen2ForSequenceClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, Qwen2Config(**SMALL, num_labels=3), tmp_path)


def test_other_heads_of_qwen3(tmp_path):
    both_ways(Qwen3ForTokenClassification, Qwen3Config(**SMALL, num_labels=3), tmp_path)


def test_a_window_that_is_switched_off_is_not_needed(tmp_path):
    """Files of the first release carry a window beside the switch that turns it off."""
    folder = tiny(Qwen2ForCausalLM, Qwen2Config(**SMALL), tmp_path)
    rewrite(folder, ("layer_types",), sliding_window=131072, use_sliding_window=False, max_window_layers=0)
    assert {block.branches[0].part.mask.kind for block in hf.read_spec(folder)[0].blocks} == {"causal"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["sliding_attention"] * 3}, "use_sliding_window is off"),
        (
            {"use_sliding_window": True, "sliding_window": "4", "max_window_layers": 0, "layer_types": None},
            "sliding_window is '4'",
        ),
        ({"use_mrope": True}, "use_mrope not understood"),
        ({"use_sliding_window": 1}, "use_sliding_window is 1"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(Qwen2ForCausalLM, Qwen2Config(**SMALL), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
