"""DeepSeek-V2 and -V3 against transformers, both ways."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    DeepseekV3ForSequenceClassification,
    DeepseekV3Model,
)

from cutaway.checkpoints import hf
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, both_ways, rewrite, same_logits, tiny

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "moe_intermediate_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 3,
    "first_k_dense_replace": 1, "kv_lora_rank": 10, "q_lora_rank": 14, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 5, "n_group": 4, "topk_group": 2, "max_position_embeddings": 64,
} | TOKENS  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 16, "beta_fast": 32,
    "beta_slow": 1,
}  # fmt: skip


def v3(**changes):
    return DeepseekV3Config(**SIZES | changes)


def v2(**changes):
    return DeepseekV2Config(**SIZES | {"n_shared_experts": 2} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"q_lora_rank": None, "n_shared_experts": 3, "routed_scaling_factor": 1.0, "rms_norm_eps": 2e-3},
        {"rope_interleave": False, "attention_bias": True, "norm_topk_prob": False},
        {"q_lora_rank": None, "attention_bias": True, "tie_word_embeddings": True, "hidden_act": "gelu"},
        {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 0, "num_experts_per_tok": 8},
        {"first_k_dense_replace": 2, "n_group": 2, "topk_group": 2, "attention_dropout": 0.1},
        {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
        {"rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.5, "factor": 4.0}, "rope_interleave": False},
        {"rope_parameters": YARN | {"mscale_all_dim": 0.8}},
        {"rope_parameters": YARN | {"mscale": 0.8}},
        {"rope_parameters": YARN | {"attention_factor": 1.3, "truncate": False}},
    ],
)
def test_the_third_version_both_ways(changes, tmp_path):
    both_ways(DeepseekV3ForCausalLM, v3(**changes), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0, "num_experts_per_tok": 4},
        {"q_lora_rank": None, "mlp_bias": True, "attention_bias": True, "n_shared_experts": 1},
        {"n_group": None, "topk_group": None, "first_k_dense_replace": 0},
        {"rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}, "rms_norm_eps": 2e-3},
    ],
)
def test_the_second_version_both_ways(changes, tmp_path):
    both_ways(DeepseekV2ForCausalLM, v2(**changes), tmp_path)


@pytest.mark.parametrize("model_class", [DeepseekV3Model, DeepseekV3ForSequenceClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, v3(num_labels=3), tmp_path)


def test_fused_experts_of_newer_files(tmp_path):
    folder = tiny(DeepseekV3ForCausalLM, v3(), tmp_path, save_original_format=False)
    assert "model.layers.1.mlp.experts.gate_up_proj" in hf.open_weights(folder).names()
    same_logits(folder)


def test_the_published_configuration(tmp_path):
    """Keys of the files of 2024, which transformers does not write any more."""
    folder = tiny(DeepseekV3ForCausalLM, v3(), tmp_path)
    yarn = {key: value for key, value in YARN.items() if key not in ("rope_type", "rope_theta")}
    rewrite(
        folder, drop=("rope_parameters", "head_dim", "qk_head_dim"), rope_theta=1e4, aux_loss_alpha=0.001, ep_size=1,
        rope_scaling=yarn | {"type": "yarn", "mscale": 1.0, "mscale_all_dim": 1.0}, moe_layer_freq=1, seq_aux=True,
        scoring_func="sigmoid", topk_method="noaux_tc", num_nextn_predict_layers=1, auto_map={"AutoConfig": "x"},
    )  # fmt: skip
    same_logits(folder)


def test_the_layer_that_guesses_ahead_is_left_out(tmp_path):
    folder = tiny(DeepseekV3ForCausalLM, v3(), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"model.layers.61.eh_proj.weight": torch.ones(2, 4)}, folder / "model.safetensors")
    found = open_checkpoint(folder).match
    assert list(found.ignored) == ["model.layers.61.eh_proj.weight"]
    save_file(tensors | {"model.layers.3.eh_proj.weight": torch.ones(2, 4)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="model.layers.3.eh_proj.weight is not understood"):
        open_checkpoint(folder).load()


def test_weights_of_8_bits(tmp_path):
    """Blocks of 128 by 128 with a factor each, as the published checkpoint has them."""
    sizes = {"hidden_size": 256, "intermediate_size": 384, "vocab_size": 31, "num_hidden_layers": 2}
    folder = tiny(DeepseekV3ForCausalLM, v3(**sizes), tmp_path / "in")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.gate_proj.weight"
    blocks = tensors[name].unflatten(0, (3, 128)).unflatten(2, (2, 128))  # 3 128 2 128
    factors = blocks.abs().amax((1, 3)) / 448
    packed = (blocks / factors[:, None, :, None]).to(torch.float8_e4m3fn)
    plain = (packed.float() * factors[:, None, :, None]).flatten(2).flatten(0, 1)
    save_file(tensors | {name: plain}, folder / "model.safetensors")
    with torch.no_grad():
        want = open_checkpoint(folder).load()(torch.tensor([[3, 4, 5]]))
    packed = packed.flatten(2).flatten(0, 1).contiguous()
    save_file(tensors | {name: packed, f"{name}_scale_inv": factors}, folder / "model.safetensors")
    rewrite(folder, quantization_config={"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]})
    with torch.no_grad():
        assert torch.equal(open_checkpoint(folder).load()(torch.tensor([[3, 4, 5]])), want)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"topk_method": "greedy"}, "topk_method is 'greedy'"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2"),
        ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        ({"topk_group": 1, "num_experts_per_tok": 4}, "groups of 2 experts do not hold the 4 active"),
        ({"n_group": 3}, "8 experts cannot form 3 equal groups"),
        ({"q_lora_rank": "x"}, "Latent.q_rank"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(DeepseekV3ForCausalLM, v3(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)


@pytest.mark.parametrize(
    ("changes", "message"), [({"norm_topk_prob": True}, "norm_topk_prob is True"), ({"topk_method": "x"}, "'x'; known")]
)
def test_what_is_refused_of_the_second_version(changes, message, tmp_path):
    folder = rewrite(tiny(DeepseekV2ForCausalLM, v2(), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)
