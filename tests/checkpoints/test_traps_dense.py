"""Traps of dense decoders, each with its figure: rotations, windows, scales, caps, norms, factors, tied tables."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import cutaway
from cutaway import spec
from cutaway.checkpoints import native
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.family import family_of
from cutaway.checkpoints.gguf import GGUF
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from cutaway.parts.embedding import TokenEmbedding
from cutaway.parts.functions import soft_cap
from cutaway.parts.norms import RMSNorm
from tests.checkpoints.case import off, off_with, opened

SIZES = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 40,
    "vocab_size": 61, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 8, "sliding_window": 5,
}  # fmt: skip


def read(model_type, n_layers, **keys):
    config = Config({"model_type": model_type, "num_hidden_layers": n_layers} | SIZES | keys, "config.json")
    return family_of(model_type, "test").to_spec(config)


def attention(record, layer=0):
    return record.blocks[layer].branches[0].part


def copied(shared, tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(shared / "cases" / "given" / name / "model", folder)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    return folder


@pytest.mark.parametrize("name", ["cohere-a", "cohere2-a"])
def test_trap_01_rope_in_neighbouring_pairs(shared, name):
    case = opened(shared, name)
    assert off(case.model, case.refs) <= case.tolerance
    assert off_with(case, spec.RoPE, layout="halves") > 1000 * case.tolerance


def test_trap_02_rope_theta_is_noted_where_it_is_missing():
    config = Config({"num_hidden_layers": 1} | SIZES, "config.json")
    assert attention(family_of("smollm3", "test").to_spec(config)).positions.base == 2000000.0
    assert config.defaulted["rope_theta"] == 2000000.0


def test_trap_02_each_kind_of_layer_has_its_own_theta():
    older = read("gemma3_text", 6, rope_theta=1e6, rope_local_base_freq=1e4)
    tables = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    newer = read("gemma3_text", 6, rope_parameters=tables)
    assert older == newer and [attention(older, i).positions.base for i in (0, 5)] == [1e4, 1e6]


def test_trap_05_yarn_without_its_factor_is_off(shared):
    case = opened(shared, "llama-yarn-a")
    assert off(case.model, case.refs) <= case.tolerance
    assert off_with(case, spec.YarnScaling, attention_factor=1.0) > 1000 * case.tolerance


def test_trap_05_longrope_has_a_factor_of_the_lengths(shared):
    case = opened(shared, "phi3-a")
    scaling = attention(case.model.spec).positions.scaling
    assert scaling.factor == 4.0 and scaling.original_length == 12
    assert off_with(case, spec.LongRopeScaling, attention_factor=1.0) > 1000 * case.tolerance


def test_trap_06_partial_rotation_of_a_head():
    assert attention(read("phi3", 1, head_dim=16, partial_rotary_factor=0.4)).positions.rotary_dim == 6
    with pytest.raises(CheckpointError, match="partial_rotary_factor is 0.4"):  # it turns whole heads
        read("llama", 1, partial_rotary_factor=0.4)


@pytest.mark.parametrize("name", ["mistral-a", "gemma2-a", "gemma3-a", "cohere2-a", "olmo3-a"])
def test_trap_12_sliding_window_off_by_one(shared, name):
    case = opened(shared, name)
    assert off(case.model, case.refs) <= case.tolerance
    assert off_with(case, spec.SlidingMask, window=6) > 1000 * case.tolerance


@pytest.mark.parametrize(
    ("model_type", "keys", "sliding"),
    [
        ("gemma2", {}, [0, 2, 4, 6, 8, 10, 12]),
        ("gemma3_text", {}, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12]),
        ("gemma3_text", {"sliding_window_pattern": 3}, [0, 1, 3, 4, 6, 7, 9, 10, 12]),
        ("cohere2", {}, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12]),
        ("olmo3", {}, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12]),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 11}, [11, 12]),
        ("qwen2", {"use_sliding_window": False, "max_window_layers": 0}, []),
        ("qwen3", {"use_sliding_window": True}, []),
        ("mistral", {}, list(range(13))),
        ("mistral", {"sliding_window": None}, []),
        ("gemma2", {"layer_types": ["sliding_attention", *["full_attention"] * 12]}, [0]),
    ],
)
def test_trap_13_which_layers_slide(model_type, keys, sliding):
    masks = [attention(read(model_type, 13, **keys), i).mask for i in range(13)]
    assert [i for i, mask in enumerate(masks) if mask == spec.SlidingMask(window=5)] == sliding
    assert all(mask == spec.CausalMask() for i, mask in enumerate(masks) if i not in sliding)


def test_trap_19_head_dim_is_not_hidden_over_heads():
    part = attention(
        read("gemma3_text", 1, hidden_size=640, num_attention_heads=4, head_dim=256, query_pre_attn_scalar=256)
    )
    assert spec.sizes(part, 640).head_dim == 256 and spec.sizes(part, 640).scale == 1 / 16
    assert spec.sizes(attention(read("llama", 1, head_dim=None)), 32).head_dim == 8


def test_trap_20_scales_of_the_architectures(shared):
    assert attention(read("gemma2", 1, query_pre_attn_scalar=30)).scale == 30**-0.5
    assert attention(read("granite", 1, attention_multiplier=0.015625)).scale == 0.015625
    assert attention(read("granite", 1)).scale == 1.0
    case = opened(shared, "gemma2-a")
    assert off_with(case, spec.MultiHead, scale="auto") > 1000 * case.tolerance


def test_trap_21_soft_caps():
    assert soft_cap(torch.tensor(60.0), 50.0).item() == pytest.approx(41.6827, abs=1e-4)
    assert soft_cap(torch.tensor(45.0), 30.0).item() == pytest.approx(27.1544, abs=1e-4)


def test_trap_21_caps_are_kept_in_every_path(shared):
    """Plain, cached, one query, and with a listener."""
    case = opened(shared, "gemma2-a")
    assert off_with(case, spec.MultiHead, soft_cap="none") > 100 * case.tolerance
    assert off_with(case, spec.LanguageHead, soft_cap="none") > 1000 * case.tolerance
    seen = []
    with cutaway.listening(case.model, lambda name, x: seen.append(x), "blocks.1.attn.scores"):
        assert off(case.model, case.refs) <= case.tolerance
    assert seen[0][torch.isfinite(seen[0])].abs().max() < 3.0
    cache = cutaway.Cache(case.model.spec.blocks)
    ids = case.refs["full.ids"]
    with torch.no_grad():
        steps = [case.model(ids[:, i : i + 1], cache=cache) for i in range(ids.shape[1])]
    assert (torch.cat(steps, 1) - case.refs["full.logits"]).abs().max() <= case.tolerance


@pytest.mark.parametrize("name", ["gemma-a", "gemma2-a", "gemma3-a"])
def test_trap_23_gains_are_stored_less_one(shared, name):
    case = opened(shared, name)
    assert case.model.spec.final_norm.gain == "one_plus"
    assert off(case.model, case.refs) <= case.tolerance
    assert off_with(case, spec.RMSNorm, gain="plain") > 0.5


def test_trap_23_a_file_has_the_one_added(shared, tmp_path):
    """The same weights: config.json says 1 + w, GGUF says w."""
    folder = copied(shared, tmp_path, "gemma3-a")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"query_pre_attn_scalar": 20}))
    convert(folder, "gguf", tmp_path / "file")
    (file,) = (tmp_path / "file").iterdir()
    ours, theirs = open_checkpoint(folder).load(), open_checkpoint(file).load()
    assert theirs.spec.final_norm.gain == "plain"
    assert (theirs.final_norm.weight - ours.final_norm.weight - 1).abs().max() < 1e-6
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert (ours(ids) - theirs(ids)).abs().max() < 2e-5


@pytest.mark.parametrize("gain", ["plain", "one_plus"])
def test_trap_24_rms_norm_in_half_precision(gain):
    norm = RMSNorm(2, 1e-6, gain).half()
    with torch.no_grad():
        assert norm(torch.tensor([300.0, 300.0]).half()).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("model_type", "keys", "eps"),
    [
        ("llama", {"rms_norm_eps": 2e-3}, 2e-3),
        ("cohere", {"layer_norm_eps": 3e-3}, 3e-3),
        ("olmo", {}, 1e-5),
        ("gemma2", {"rms_norm_eps": 3e-3}, 3e-3),
    ],
)
def test_trap_25_epsilon_is_read(model_type, keys, eps):
    record = read(model_type, 1, **keys)
    norms = []
    spec.mapped(record, lambda each: norms.append(each) or each if hasattr(each, "eps") else each)
    assert {norm.eps for norm in norms} == {eps}


def test_trap_25_no_epsilon_is_made_up():
    with pytest.raises(CheckpointError, match="rms_norm_eps is missing"):
        read("qwen2", 1, rms_norm_eps=None)


@pytest.mark.parametrize(("dtype", "want"), [(torch.float32, math.sqrt(3072)), (torch.bfloat16, 55.5)])
def test_trap_26_embedding_factor_in_the_dtype_of_the_model(dtype, want):
    embedding = TokenEmbedding(spec.TokenEmbedding(factor="sqrt_d_model"), 3072, 2, None, 0.0).to(dtype)
    embedding.tokens.weight = torch.nn.Parameter(torch.ones(2, 3072, dtype=dtype))
    with torch.no_grad():
        got = embedding(torch.zeros(1, 1, dtype=torch.long), None)
    assert got[0, 0, 0].item() == torch.tensor(want, dtype=dtype).item()


def test_trap_26_multipliers(shared):
    record = read("granite", 1, embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.25)
    assert record.embedding.factor == 12.0 and record.head.logit_factor == 1 / 8
    assert [stage.residual.scale for stage in record.blocks[0].stages] == [0.25, 0.25]
    case = opened(shared, "cohere-a")
    assert case.model.spec.head.logit_factor == 0.3
    assert off_with(case, spec.LanguageHead, logit_factor=1.0) > 1000 * case.tolerance
    case = opened(shared, "gemma-a")
    assert off_with(case, spec.TokenEmbedding, factor=1.0) > 1000 * case.tolerance


def test_trap_29_a_tied_head_shares_the_table(shared, tmp_path):
    model = opened(shared, "qwen2-a").model
    assert model.spec.head.tied and "head.weight" not in dict(model.named_parameters())
    native.save(model, tmp_path / "saved")
    again = open_checkpoint(tmp_path / "saved").load()
    assert again.head.tied[0] is again.embedding.table
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(model(ids), again(ids))


def test_trap_29_a_head_of_its_own_must_be_there(shared, tmp_path):
    folder = copied(shared, tmp_path, "qwen2-a")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    with pytest.raises(CheckpointError, match="lm_head.weight is missing"):
        open_checkpoint(folder).load()


def test_trap_30_leftover_buffers_are_ignored_by_name_alone(shared, tmp_path):
    folder = copied(shared, tmp_path, "mistral-a")
    state = load_file(folder / "model.safetensors")
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4) for i in range(3)}
    save_file(state | buffers, folder / "model.safetensors")
    assert set(open_checkpoint(folder).match.ignored) == set(buffers)
    save_file(state | {"model.layers.0.self_attn.mystery": torch.ones(4)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="model.layers.0.self_attn.mystery is not understood"):
        open_checkpoint(folder).load()


def test_trap_34_rows_of_q_and_k_are_permuted_in_files_of_llama_alone(shared):
    for name, permuted in (("gguf-llama-a", True), ("gguf-qwen2-a", False)):
        path = shared / "cases" / "given" / "gguf" / name / f"{name}.gguf"
        model = open_checkpoint(path).load()
        raw, ours = GGUF(path).read("blk.0.attn_q.weight"), model.blocks[0].attn.q_proj.weight
        halves = raw.reshape(4, 8, 2, -1).transpose(1, 2).reshape(raw.shape)
        assert torch.equal(ours.data, halves if permuted else raw)
        assert not torch.equal(halves, raw)


def test_trap_35_values_of_half_precision_are_widened_exactly(shared):
    folder = shared / "cases" / "given" / "llama-bf16" / "model"
    stored = load_file(folder / "model.safetensors")
    model = open_checkpoint(folder).load()
    assert stored["model.norm.weight"].dtype == torch.bfloat16
    for theirs, ours in (
        ("model.norm.weight", "final_norm.weight"),
        ("model.layers.0.mlp.up_proj.weight", "blocks.0.ffn.up_proj.weight"),
    ):
        assert model.get_parameter(ours).dtype == torch.float32
        assert torch.equal(model.get_parameter(ours).data, stored[theirs].float())
