"""Mixtures of experts in GGUF: out and back without a change, by transformers' reader, and what GGUF cannot say."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GptOssForCausalLM,
    MixtralForCausalLM,
    OlmoeForCausalLM,
    Qwen2MoeForCausalLM,
    Qwen3MoeForCausalLM,
)

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.gguf import GGUF
from cutaway.checkpoints.weights import open_weights
from cutaway.errors import CheckpointError
from tests.checkpoints.families import test_gpt_oss, test_mixtral, test_olmoe, test_qwen_moe
from tests.checkpoints.families.tiny import tiny

IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10, 11, 12]])
YARN = {
    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": False, "original_max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    "llama": (MixtralForCausalLM, lambda: test_mixtral.config(num_experts_per_tok=3)),
    "qwen2moe": (Qwen2MoeForCausalLM, test_qwen_moe.qwen2),
    "qwen3moe": (Qwen3MoeForCausalLM, lambda: test_qwen_moe.qwen3(norm_topk_prob=True, tie_word_embeddings=True)),
    "olmoe": (OlmoeForCausalLM, lambda: test_olmoe.config(num_key_value_heads=2)),
    "gpt-oss": (GptOssForCausalLM, lambda: test_gpt_oss.config(rope_parameters=YARN, num_hidden_layers=4)),
}


@cache
def folder(name, tmp):
    model_class, config = MODELS[name]
    return tiny(model_class, config(), tmp / name)


@pytest.fixture(scope="module")
def tmp(tmp_path_factory):
    return tmp_path_factory.mktemp("mixtures")


@pytest.mark.parametrize("name", MODELS)
def test_out_and_back(name, tmp, tmp_path):
    source = folder(name, tmp)
    assert convert(source, "gguf", tmp_path / "gguf").label == name
    convert(tmp_path / "gguf", "hf", tmp_path / "hf")
    old, new = open_weights(source), open_weights(tmp_path / "hf")
    assert set(old.names()) == set(new.names())
    assert all(torch.equal(old.read(each), new.read(each)) for each in old.names())
    want = cutaway.load(source)(IDS)
    assert torch.equal(cutaway.load(tmp_path / "gguf", tokenizer=False)(IDS), want)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_of_eight_bits(name, tmp, tmp_path):
    """Rows of 32 numbers are blocks; routers, vectors and the biases of experts stay wide."""
    convert(folder(name, tmp), "gguf", tmp_path, dtype="Q8_0")
    (path,) = tmp_path.glob("*.gguf")
    kinds = {each: info.kind.name for each, info in GGUF(path).tensors.items()}
    assert kinds["blk.0.ffn_gate_exps.weight"] == "Q8_0" and kinds["blk.0.ffn_gate_inp.weight"] == "F32"
    assert {kind for each, kind in kinds.items() if each.endswith(("bias", "norm.weight", "sinks.weight"))} == {"F32"}
    want = cutaway.load(folder(name, tmp))(IDS)
    assert (cutaway.load(path, tokenizer=False)(IDS) - want).abs().max() < 0.2 * want.abs().max()


@pytest.mark.parametrize(
    ("model_class", "config"),
    [  # transformers reads no width of experts from a file, so here they have those of its own defaults
        (Qwen2MoeForCausalLM, {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}),
        (Qwen3MoeForCausalLM, {"moe_intermediate_size": 768, "norm_topk_prob": True}),
    ],
)
def test_transformers_reads_the_file_alike(model_class, config, tmp_path):
    made = test_qwen_moe.qwen2 if model_class is Qwen2MoeForCausalLM else test_qwen_moe.qwen3
    source = tiny(model_class, made(num_hidden_layers=2, **config), tmp_path / "in")
    convert(source, "gguf", tmp_path / "gguf")
    (path,) = (tmp_path / "gguf").glob("*.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        want = theirs(IDS).logits
    assert isinstance(theirs, model_class)
    assert (cutaway.load(path, tokenizer=False)(IDS) - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize(
    ("model_class", "config"),
    [
        (MixtralForCausalLM, test_mixtral.config(sliding_window=5)),
        (Qwen2MoeForCausalLM, test_qwen_moe.qwen2(norm_topk_prob=True)),
        (Qwen3MoeForCausalLM, test_qwen_moe.qwen3(norm_topk_prob=False)),
        (Qwen3MoeForCausalLM, test_qwen_moe.qwen3(norm_topk_prob=True, mlp_only_layers=[1])),
        (OlmoeForCausalLM, test_olmoe.config(clip_qkv=0.5)),
        (GptOssForCausalLM, test_gpt_oss.config(rope_parameters=YARN, swiglu_limit=3.0)),
        (GptOssForCausalLM, test_gpt_oss.config(rope_parameters=YARN, attention_bias=False)),
    ],
)
def test_what_no_architecture_can_say_is_refused(model_class, config, tmp_path):
    with pytest.raises(CheckpointError, match="no GGUF architecture can hold this model"):
        convert(tiny(model_class, config, tmp_path / "in"), "gguf", tmp_path / "out")
