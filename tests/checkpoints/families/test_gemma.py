"""Gemma, Gemma 2 and Gemma 3 against transformers: masks, caps, scales, rotations, and the way back out."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma2ForTokenClassification,
    Gemma2Model,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    Gemma3TextForSequenceClassification,
    Gemma3TextModel,
    GemmaConfig,
    GemmaForCausalLM,
)

from cutaway.checkpoints import hf
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import family_of
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.decoders import SMALL, same_spec_when_older
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, same_text, tiny

TYPES = ["full_attention", "sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head_dim": 12, "attention_bias": True, "tie_word_embeddings": False, "rms_norm_eps": 2e-3},
        {"num_key_value_heads": 1, "hidden_act": "gelu", "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ],
)
def test_gemma_both_ways(changes, tmp_path):
    both_ways(GemmaForCausalLM, GemmaConfig(**SMALL | {"head_dim": 8} | changes), tmp_path)
    same_spec_when_older(tmp_path / "in", hidden_activation=None)


def gemma2(**changes):
    return Gemma2Config(**SMALL | {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_logit_softcapping": 0.7, "final_logit_softcapping": 1.5},
        {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 30},
        {"head_dim": 12, "attention_bias": True, "layer_types": TYPES, "query_pre_attn_scalar": 144},
        {"hidden_activation": "silu", "num_hidden_layers": 4, "tie_word_embeddings": False},
    ],
)
def test_gemma2_both_ways(changes, tmp_path):
    both_ways(Gemma2ForCausalLM, gemma2(**changes), tmp_path)
    drop = () if "layer_types" in changes else ("layer_types",)
    same_spec_when_older(tmp_path / "in", drop, hidden_act="gelu_pytorch_tanh", cache_implementation="hybrid")


@pytest.mark.parametrize("model_class", [Gemma2Model, Gemma2ForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, gemma2(num_labels=3), tmp_path)


def gemma3(**changes):
    return Gemma3TextConfig(**SMALL | {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8} | changes)


ROPES = {
    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": TYPES, "rope_parameters": ROPES},
        {"layer_types": TYPES, "rope_parameters": dict(reversed(ROPES.items())), "query_pre_attn_scalar": 24},
        {"head_dim": 12, "attention_bias": True, "final_logit_softcapping": 1.5, "tie_word_embeddings": False},
        {"num_hidden_layers": 8, "rms_norm_eps": 2e-3},
        {"sliding_window_pattern": 2},
        {"layer_types": ["full_attention"] * 3},
    ],
)
def test_gemma3_both_ways(changes, tmp_path):
    both_ways(Gemma3ForCausalLM, gemma3(**changes), tmp_path)


def test_gemma3_in_the_older_layout(tmp_path):
    folder = tiny(Gemma3ForCausalLM, gemma3(layer_types=TYPES, rope_parameters=ROPES), tmp_path)
    newer = hf.read_spec(folder)[0]
    local = {"rope_local_base_freq": 50.0, "rope_theta": 5000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    rewrite(folder, ("rope_parameters", "layer_types", "_sliding_window_pattern"), **local, sliding_window_pattern=6)
    assert [layer.branches[0].part.mask.kind for layer in hf.read_spec(folder)[0].blocks] == ["sliding"] * 3
    assert hf.read_spec(rewrite(folder, layer_types=TYPES))[0] == newer
    same_logits(folder)


def test_gemma3_that_looks_both_ways_is_an_encoder(tmp_path):
    folder = tiny(Gemma3TextModel, gemma3(layer_types=TYPES, use_bidirectional_attention=True), tmp_path / "in")
    rewrite(folder, sliding_window=6)  # saving halves it, opening halves it again
    model = same_logits(folder)
    assert model.spec.kind == "encoder"
    assert [block.branches[0].part.mask.kind for block in model.spec.blocks] == ["full", "two_sided", "full"]


def test_classes_of_gemma3(tmp_path):
    both_ways(Gemma3TextForSequenceClassification, gemma3(num_labels=3), tmp_path)


PICTURES = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 2, "vision_use_head": False,
}  # fmt: skip


def test_gemma3_with_pictures_is_read_as_text(tmp_path):
    text = gemma3(layer_types=TYPES, rope_parameters=ROPES, vocab_size=61)
    config = Gemma3Config(text_config=text.to_dict(), vision_config=PICTURES, **TOKENS, image_token_index=60)
    folder = tiny(Gemma3ForConditionalGeneration, config, tmp_path / "in")
    model = same_logits(folder)
    same_text(folder)
    assert {name.split(".")[0] for name in open_checkpoint(folder).match.ignored} == {
        "vision_tower",
        "multi_modal_projector",
    }
    state = load_file(folder / "model.safetensors")
    newer = {f"model.{name}".replace("language_model.model.", "language_model."): x for name, x in state.items()}
    save_file(newer, folder / "model.safetensors")
    again = open_checkpoint(folder).load()
    assert all(torch.equal(x, again.get_parameter(name)) for name, x in model.named_parameters())


def test_published_files_of_gemma3_leave_much_out():
    table = {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    }  # fmt: skip
    config = Config({"model_type": "gemma3", "text_config": table}, "config.json")
    record = family_of("gemma3", "test").to_spec(config)
    part = record.blocks[5].branches[0].part
    assert (part.n_heads, part.n_kv_heads, part.head_dim, record.vocab_size) == (8, 4, 256, 262208)
    assert part.positions.scaling.factor == 8.0 and record.blocks[0].branches[0].part.mask.window == 1024
    assert config.defaulted["head_dim"] == 256
    with pytest.raises(CheckpointError, match="text_config: mystery.*not understood"):
        family_of("gemma3", "test").to_spec(Config({"text_config": table | {"mystery": 1}}, "config.json"))


@pytest.mark.parametrize(
    ("model_class", "config", "changes", "message"),
    [
        (GemmaForCausalLM, GemmaConfig(**SMALL, head_dim=8), {"use_bidirectional_attention": True}, "bidirectional"),
        (GemmaForCausalLM, GemmaConfig(**SMALL, head_dim=8), {"hidden_activation": "relu"}, "hidden_activation is"),
        (Gemma2ForCausalLM, gemma2(), {"sliding_window": None}, "sliding_window is missing"),
        (Gemma2ForCausalLM, gemma2(), {"use_bidirectional_attention": True}, "bidirectional"),
        (Gemma3ForCausalLM, gemma3(), {"use_bidirectional_attention": True}, "runs both ways"),
        (Gemma3ForCausalLM, gemma3(), {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        (
            Gemma3ForCausalLM,
            gemma3(),
            {"rope_parameters": {"rope_theta": 1.0}},
            "rope_parameters.full_attention is None",
        ),
    ],
)
def test_what_is_refused(model_class, config, changes, message, tmp_path):
    folder = rewrite(tiny(model_class, config, tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
