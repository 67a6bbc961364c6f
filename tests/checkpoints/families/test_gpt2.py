"""GPT-2 against transformers: every switch of its configuration, its heads, and the way back out."""

from __future__ import annotations

import pytest
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
)

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, rewrite, round_trip, same_logits, same_text, tiny


def config(**changes):
    return GPT2Config(
        **{"vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48} | TOKENS | changes
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_inner": 40, "activation_function": "relu", "layer_norm_epsilon": 3e-3},
        {"scale_attn_weights": False, "activation_function": "gelu"},
        {"scale_attn_by_inverse_layer_idx": True, "activation_function": "silu"},
        {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False, "activation_function": "tanh"},
        {"reorder_and_upcast_attn": True, "tie_word_embeddings": False, "attn_pdrop": 0, "embd_pdrop": 0.2},
        {"n_layer": 1, "n_head": 1, "activation_function": "gelu_fast"},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    folder = tiny(GPT2LMHeadModel, config(**changes), tmp_path / "in")
    same_logits(folder)
    same_text(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("model_class", [GPT2Model, GPT2ForSequenceClassification, GPT2ForTokenClassification])
def test_other_heads(model_class, tmp_path):
    folder = tiny(model_class, config(num_labels=3), tmp_path / "in")
    same_logits(folder)
    round_trip(folder, tmp_path / "out")


def test_files_of_2019(tmp_path):
    folder = tiny(GPT2LMHeadModel, config(), tmp_path / "in")
    late = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "tie_word_embeddings")
    rewrite(folder, late + ("n_inner", "add_cross_attention"), n_ctx=48, summary_type="cls_index")
    same_logits(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "GPT2DoubleHeadsModel"),
        ({"activation_function": "mish"}, "activation_function is 'mish'"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(GPT2LMHeadModel, config(n_layer=1), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
