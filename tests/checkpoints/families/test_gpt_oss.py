"""gpt-oss against transformers, both ways, plain and in MXFP4."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, GptOssForTokenClassification, GptOssModel

import cutaway
from cutaway.checkpoints import hf
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, peer, rewrite, same_logits, same_text, tiny

BF16, IDS = torch.bfloat16, torch.tensor([[3, 4, 5, 6]])


def config(**changes):
    return GptOssConfig(
        **{
            "vocab_size": 61, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 3, "head_dim": 8,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 6, "num_experts_per_tok": 2,
            "max_position_embeddings": 64, "sliding_window": 5,
        } | TOKENS | changes
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"swiglu_limit": 0.3, "swiglu_alpha": 0.9, "rms_norm_eps": 2e-3, "num_experts_per_tok": 1},
        {"attention_bias": False, "tie_word_embeddings": True, "num_experts_per_tok": 6, "swiglu_alpha": 1.0},
        {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "sliding_window": 3},
        {"layer_types": ["full_attention"] * 3, "num_key_value_heads": 4},
        {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"output_router_logits": True, "router_aux_loss_coef": 0.9, "attention_dropout": 0.1, "hidden_size": 24},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(GptOssForCausalLM, config(**changes), tmp_path)


@pytest.mark.parametrize("model_class", [GptOssModel, GptOssForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, config(num_labels=3), tmp_path)


def test_a_configuration_without_scaling_has_their_own(tmp_path):
    folder = tiny(GptOssForCausalLM, config(), tmp_path)
    scaling = same_logits(rewrite(folder, drop=("rope_parameters",), rope_theta=150000.0, rope_scaling=None)).spec
    scaling = scaling.blocks[0].branches[0].part.positions.scaling
    assert (scaling.kind, scaling.factor, scaling.truncate) == ("yarn", 32.0, False)


def test_the_published_configuration(tmp_path):
    folder = tiny(GptOssForCausalLM, config(), tmp_path)
    rewrite(folder, experts_per_token=2, initial_context_length=4096)
    same_logits(folder)


def packed(folder, seed=0):
    """The folder with its experts in MXFP4, random bytes, as the published files have them."""
    generator, tensors = torch.Generator().manual_seed(seed), load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        n_experts, d_in, d_out = tensors.pop(name).shape
        shape = (n_experts, d_out, d_in // 32)
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
        tensors[f"{name}_scales"] = torch.randint(118, 124, shape, dtype=torch.uint8, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    return rewrite(folder, quantization_config=quantization)


def test_mxfp4_equals_the_peer_and_goes_out_plain(tmp_path):
    made = config(hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_local_experts=3)
    folder = packed(tiny(GptOssForCausalLM, made, tmp_path / "in"))
    same_logits(folder)
    same_text(folder)
    theirs, ours = peer(folder).state_dict(), dict(open_checkpoint(folder).load().named_parameters())
    first = theirs["model.layers.0.mlp.experts.gate_up_proj"][1].T  # rows: gate, up, gate, up, ...
    assert torch.equal(ours["blocks.0.ffn.experts.1.gate_proj.weight"], first[::2].float())
    assert torch.equal(ours["blocks.0.ffn.experts.1.up_proj.weight"], first[1::2].float())
    convert(folder, "hf", tmp_path / "out")
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())

    assert load_file(tmp_path / "out" / "model.safetensors")["model.layers.1.mlp.experts.down_proj"].dtype == BF16
    assert torch.equal(peer(tmp_path / "out")(IDS).logits, peer(folder)(IDS).logits)
    assert torch.equal(cutaway.load(folder)(IDS), cutaway.load(tmp_path / "out")(IDS))


def test_mxfp4_without_its_scales_is_named(tmp_path):
    folder = packed(tiny(GptOssForCausalLM, config(hidden_size=32, intermediate_size=32), tmp_path))
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.experts.down_proj_scales"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="layers.1.mlp.experts.down_proj_blocks has shape"):
        open_checkpoint(folder).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"sliding_window": None}, "sliding_window is missing"),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types is"),
        ({"swiglu_limit": -1.0}, "Gated.clamp"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "'bitsandbytes' are not read"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(GptOssForCausalLM, config(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
