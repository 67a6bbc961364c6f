"""Granite against transformers: its four factors, and the way back out."""

from __future__ import annotations

import pytest
from transformers import GraniteConfig, GraniteForCausalLM, GraniteModel

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"embedding_multiplier": 12.0, "logits_scaling": 3.0, "residual_multiplier": 0.22},
        {"attention_multiplier": 0.0625, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {"attention_multiplier": 8**-0.5, "embedding_multiplier": 2, "logits_scaling": 7, "rms_norm_eps": 2e-3},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(GraniteForCausalLM, GraniteConfig(**SMALL | changes), tmp_path)
    same_spec_when_older(tmp_path / "in")


def test_a_model_without_a_head(tmp_path):
    both_ways(GraniteModel, GraniteConfig(**SMALL, residual_multiplier=0.5), tmp_path)


def test_what_is_refused(tmp_path):
    folder = rewrite(tiny(GraniteForCausalLM, GraniteConfig(**SMALL), tmp_path), embedding_multiplier="12")
    with pytest.raises(CheckpointError, match="embedding_multiplier is '12'"):
        hf.read_spec(folder)
