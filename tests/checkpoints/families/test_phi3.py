"""Phi-3 against transformers: fused matrices, LongRoPE on both sides of its border, and the way back out."""

from __future__ import annotations

import pytest
import torch
from transformers import Phi3Config, Phi3ForCausalLM, Phi3ForSequenceClassification, Phi3Model

from cutaway.checkpoints import hf
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, peer, rewrite, tiny

FACTORS = {"short_factor": [1.0, 1.2, 1.5, 1.9], "long_factor": [1.0, 2.0, 4.0, 7.0]}
LONG = {"rope_type": "longrope", "rope_theta": 500.0, **FACTORS}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sliding_window": 5, "embd_pdrop": 0.1, "resid_pdrop": 0.2, "tie_word_embeddings": True},
        {"rope_parameters": LONG, "original_max_position_embeddings": 32},
        {"rope_parameters": LONG | {"factor": 3.0}, "original_max_position_embeddings": 32},
        {"rope_parameters": LONG | {"attention_factor": 1.1}, "original_max_position_embeddings": 32},
        {"num_key_value_heads": None, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(Phi3ForCausalLM, Phi3Config(**SMALL | {"pad_token_id": 0} | changes), tmp_path)
    same_spec_when_older(tmp_path / "in", attention_bias=False)


def test_longrope_switches_beyond_its_original_length(tmp_path):
    folder = tiny(
        Phi3ForCausalLM, Phi3Config(**SMALL, rope_parameters=LONG, original_max_position_embeddings=12), tmp_path
    )
    model, theirs = open_checkpoint(folder).load(), peer(folder)
    for length in (12, 13, 40):
        ids = torch.randint(3, 61, (2, length))
        with torch.no_grad():
            assert (model(ids) - theirs(ids).logits).abs().max() < 1e-4


@pytest.mark.parametrize("kind", ["su", "longrope"])
def test_both_names_of_longrope(kind, tmp_path):
    config = Phi3Config(**SMALL, rope_parameters=LONG, original_max_position_embeddings=12)
    folder = tiny(Phi3ForCausalLM, config, tmp_path)
    record = hf.read_spec(folder)[0]
    rewrite(folder, ("rope_parameters",), rope_theta=500.0, rope_scaling={"type": kind, **FACTORS})
    assert hf.read_spec(folder)[0] == record


@pytest.mark.parametrize("model_class", [Phi3Model, Phi3ForSequenceClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, Phi3Config(**SMALL, num_labels=3), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "only longrope is"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "short_factor is missing"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"lm_head_bias": True}, "lm_head_bias is True"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(Phi3ForCausalLM, Phi3Config(**SMALL), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
