"""Arcee, Jais 2, GLM-4, Helium, ERNIE 4.5, Seed-OSS, EXAONE 4.0, CWM and VaultGemma against transformers, both ways."""

from __future__ import annotations

import pytest
import transformers

from cutaway.checkpoints import hf
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import both_ways, rewrite, tiny

HEAD = {"head_dim": 8}
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
ROPE = {"rope_parameters": LLAMA3}
VARIANTS = {
    "Arcee": [{}, {"attention_bias": True, "mlp_bias": True, "head_dim": 12, "tie_word_embeddings": True}],
    "Jais2": [{}, {"attention_bias": False, "mlp_bias": False, "layer_norm_eps": 2e-3, "hidden_act": "gelu"}],
    "Glm": [HEAD, HEAD | {"attention_bias": False, "partial_rotary_factor": 1.0, "rms_norm_eps": 2e-3}],
    "Glm4": [HEAD, {"head_dim": 12, "tie_word_embeddings": True, "attention_dropout": 0.1}],
    "Helium": [HEAD, HEAD | {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 2e-3}],
    "Ernie4_5": [HEAD, HEAD | {"use_bias": True, "tie_word_embeddings": False}],
    "SeedOss": [HEAD, {"head_dim": 12, "attention_bias": False, "attention_out_bias": True, "mlp_bias": True}],
    "Exaone4": [
        {"sliding_window": 5, "num_hidden_layers": 5},
        {"sliding_window": None, "layer_types": ["full_attention"] * 3, "head_dim": 12},
        {"sliding_window": 5, "layer_types": ["full_attention"] * 3},
        {"sliding_window": 5, "layer_types": TYPES, "sliding_window_pattern": "LGL"},
    ],
    "Cwm": [
        HEAD | ROPE | {"sliding_window": 5, "num_hidden_layers": 5},
        HEAD | {"sliding_window": 5, "layer_types": TYPES, "mlp_bias": True},
    ],
    "VaultGemma": [
        HEAD | {"sliding_window": 5, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 0.7},
        {"head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 30, "layer_types": TYPES},
    ],
}  # fmt: skip


def model_of(name, kind="ForCausalLM"):
    return getattr(transformers, name + kind)


def config_of(name, **changes):
    return getattr(transformers, name + "Config")(**SMALL | changes)


@pytest.mark.parametrize(("name", "changes"), [(name, each) for name, all_ in VARIANTS.items() for each in all_])
def test_equals_the_peer_both_ways(name, changes, tmp_path):
    both_ways(model_of(name), config_of(name, **changes), tmp_path)
    same_spec_when_older(tmp_path / "in")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_without_a_head(name, tmp_path):
    both_ways(model_of(name, "Model"), config_of(name, **VARIANTS[name][0]), tmp_path)


def test_exaone4_by_its_pattern(tmp_path):
    folder = tiny(model_of("Exaone4"), config_of("Exaone4", sliding_window=5, layer_types=TYPES), tmp_path)
    record = hf.read_spec(folder)[0]
    assert hf.read_spec(rewrite(folder, ("layer_types",), sliding_window_pattern="LG"))[0] == record
    with pytest.raises(CheckpointError, match="sliding_window_pattern is 'LX'"):
        hf.read_spec(rewrite(folder, sliding_window_pattern="LX"))


@pytest.mark.parametrize(
    ("name", "drop", "changes", "message"),
    [
        ("Cwm", ("rope_parameters",), {}, "rope_parameters is missing"),
        ("Exaone4", (), {"sliding_window": None}, "sliding_window is null"),
        ("Glm", (), {"rope_parameters": {"rope_type": "axial"}}, "rope type 'axial'"),
        ("Arcee", (), {"mlp_bias": "no"}, "mlp_bias is 'no'"),
        ("Helium", (), {"attention_out_bias": True}, "attention_out_bias .*not understood"),
    ],
)
def test_what_is_refused(name, drop, changes, message, tmp_path):
    folder = rewrite(tiny(model_of(name), config_of(name, **VARIANTS[name][0]), tmp_path), drop, **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
