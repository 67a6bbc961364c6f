"""Trap 30, names of old files: bare names, leftover buffers and earlier names give the same model."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, same_logits, same_states, tiny

N_KEYS = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48}
LONG = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 48,
}  # fmt: skip
FAMILIES = {
    "GPT2": ("GPT2LMHeadModel", N_KEYS, "transformer.", ("h.0.attn.bias", "h.1.attn.masked_bias")),
    "GPTBigCode": ("GPTBigCodeForCausalLM", N_KEYS, "transformer.", ("bias",)),
    "GPTJ": ("GPTJForCausalLM", N_KEYS | {"rotary_dim": 4}, "transformer.", ("h.0.attn.bias", "h.1.attn.masked_bias")),
    "CodeGen": ("CodeGenForCausalLM", N_KEYS | {"rotary_dim": 4}, "transformer.", ("h.1.attn.causal_mask",)),
    "GPTNeo": (
        "GPTNeoForCausalLM",
        {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        "transformer.",
        ("h.0.attn.attention.bias", "h.1.attn.attention.masked_bias"),
    ),
    "GPTNeoX": (
        "GPTNeoXForCausalLM", LONG | {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "gpt_neox.",
        ("layers.0.attention.bias", "layers.1.attention.masked_bias", "layers.1.attention.rotary_emb.inv_freq"),
    ),
    "OPT": (
        "OPTForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 40, "word_embed_proj_dim": 32},
        "model.",
        (),
    ),
    "Bloom": ("BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "transformer.", ()),
    "Falcon": (
        "FalconForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        "transformer.",
        ("h.0.self_attention.rotary_emb.inv_freq",),
    ),
    "Mpt": ("MptForCausalLM", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 48}, "transformer.", ()),
    "Phi": ("PhiForCausalLM", LONG, "model.", ("layers.0.self_attn.rotary_emb.inv_freq",)),
    "StableLm": (
        "StableLmForCausalLM", LONG | {"num_key_value_heads": 4,
        "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "model.",
        ("layers.0.self_attn.rotary_emb.inv_freq",),
    ),
    "Starcoder2": ("Starcoder2ForCausalLM", LONG | {"num_key_value_heads": 2}, "model.", ("rotary_emb.inv_freq",)),
}  # fmt: skip


def made(stem, folder):
    """A folder of the family, its base prefix, its leftover buffers."""
    model_class, sizes, prefix, buffers = FAMILIES[stem]
    config = getattr(transformers, f"{stem}Config")(vocab_size=61, **sizes, **TOKENS)
    return tiny(getattr(transformers, model_class), config, folder), prefix, buffers


def renamed(folder, change):
    """Write the folder's tensors under other names."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file(change(tensors), path, {"format": "pt"})


@pytest.mark.parametrize("stem", FAMILIES)
def test_trap_30_bare_names_and_leftover_buffers(stem, tmp_path):
    folder, prefix, buffers = made(stem, tmp_path)
    want = same_logits(folder)
    renamed(folder, lambda tensors: {name.removeprefix(prefix): tensor.clone() for name, tensor in tensors.items()})
    same_weights(want, open_checkpoint(folder).load())
    renamed(folder, lambda tensors: tensors | {name: torch.ones(3) for name in buffers})
    opened = open_checkpoint(folder)
    model, report = opened.load(), opened.match
    same_weights(want, model)
    assert set(report.ignored) == set(buffers)
    renamed(folder, lambda tensors: tensors | {"h.0.attn.mystery": torch.ones(3)})
    with pytest.raises(CheckpointError, match="h.0.attn.mystery is not understood"):
        open_checkpoint(folder).load()


@pytest.mark.parametrize("stem", FAMILIES)
def test_states_of_each_layer(stem, tmp_path):
    same_states(made(stem, tmp_path)[0])


@pytest.mark.parametrize(
    "stem", [stem for stem in FAMILIES if stem not in ("GPTJ", "CodeGen", "GPTNeoX", "Phi", "StableLm")]
)
def test_a_tied_table_written_twice(stem, tmp_path):
    folder, _, _ = made(stem, tmp_path)
    want = open_checkpoint(folder).load()
    table = want.embedding.tokens.weight.detach()
    renamed(folder, lambda tensors: tensors | {"lm_head.weight": table.clone()})
    same_weights(want, open_checkpoint(folder).load())
    renamed(folder, lambda tensors: tensors | {"lm_head.weight": table + 1})
    with pytest.raises(CheckpointError, match="one tensor in this model, but the file's differ"):
        open_checkpoint(folder).load()


def test_the_head_of_neox_under_its_newer_name(tmp_path):
    folder, _, _ = made("GPTNeoX", tmp_path)
    want = open_checkpoint(folder).load()
    renamed(folder, lambda tensors: {name.replace("embed_out", "lm_head"): x for name, x in tensors.items()})
    same_weights(want, open_checkpoint(folder).load())


def same_weights(want, got):
    assert all(torch.equal(x, got.get_parameter(name)) for name, x in want.named_parameters())
