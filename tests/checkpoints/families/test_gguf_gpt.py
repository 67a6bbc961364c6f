"""GGUF files of GPT-2's relatives: ours give the logits of the folders, go back without loss, and say what they say."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, batches, peer, their_logits, tiny

LONG = {
    "vocab_size": 61, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 48,
} | TOKENS  # fmt: skip
PART = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}}
N_KEYS = {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48} | TOKENS
BLOOM = {"vocab_size": 61, "hidden_size": 48, "n_layer": 2, "n_head": 6} | TOKENS
FALCON = {key: value for key, value in LONG.items() if key != "intermediate_size"}
MPT = {"vocab_size": 61, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 48} | TOKENS
FILES = {
    "bloom": ("Bloom", BLOOM),
    "falcon": ("Falcon", FALCON),
    "falcon-new": ("Falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "gptneox": ("GPTNeoX", LONG | PART),
    "gptneox-sequential": ("GPTNeoX", LONG | PART | {"use_parallel_residual": False, "attention_bias": False}),
    "mpt": ("Mpt", MPT),
    "mpt-clip": ("Mpt", MPT | {"attn_config": {"clip_qkv": 0.5}, "tie_word_embeddings": False}),
    "phi2": ("Phi", LONG | PART | {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    "stablelm": ("StableLm", LONG | PART | {"num_key_value_heads": 2, "use_qkv_bias": True}),
    "stablelm-12b": (
        "StableLm",
        LONG | PART | {"num_key_value_heads": 2, "qk_layernorm": True, "use_parallel_residual": True},
    ),
    "starcoder": ("GPTBigCode", N_KEYS),
    "starcoder2": ("Starcoder2", LONG | {"num_key_value_heads": 2}),
    "starcoder2-no-bias": ("Starcoder2", LONG | {"num_key_value_heads": 2, "use_bias": False}),
}


def file_of(stem, settings, path):
    config = getattr(transformers, f"{stem}Config")(**settings)
    folder = tiny(getattr(transformers, f"{stem}ForCausalLM"), config, path / "in")
    written = convert(folder, "gguf", path / "out")
    (file,) = (path / "out").iterdir()
    return folder, file, written


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_folders_logits_and_goes_back(name, tmp_path):
    folder, file, written = file_of(*FILES[name], tmp_path)
    assert written.label == name.split("-")[0] and not written.notes
    ids, mask = batches(61, 24)["full"]
    want = their_logits(peer(folder), ids, mask)
    assert (cutaway.load(file, tokenizer=False)(ids) - want).abs().max() <= 1e-5 * want.abs().max()
    convert(file, "hf", tmp_path / "back")
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "back"))
    assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("stem", "settings"),
    [  # its reader takes some sizes for granted
        ("Bloom", BLOOM),
        ("Falcon", FALCON),
        ("StableLm", LONG | {"num_key_value_heads": 2}),
        ("Starcoder2", LONG | {"num_key_value_heads": 2, "vocab_size": 49152}),
    ],
)
def test_transformers_opens_what_we_write(stem, settings, tmp_path):
    folder, file, _ = file_of(stem, settings, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    ids, mask = batches(61, 24)["full"]
    want = their_logits(peer(folder), ids, mask)
    assert (their_logits(theirs, ids, mask) - want).abs().max() <= 1e-5 * want.abs().max()


NO_BIASES = {"gptneox-sequential", "starcoder2-no-bias"}
"""Files that llama.cpp refuses: of these architectures it asks for every bias."""
GPT2 = {"gpt2": ("GPT2", N_KEYS | {"activation_function": "gelu_new"})}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in (*FILES, *GPT2) if name not in NO_BIASES])
def test_llama_cpp_gives_the_folders_logits(name, tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp")
    stem, settings = (FILES | GPT2)[name]
    config = getattr(transformers, f"{stem}Config")(**settings)
    kind = "LMHeadModel" if stem == "GPT2" else "ForCausalLM"
    folder = tiny(getattr(transformers, stem + kind), config, tmp_path / "in")
    convert(folder, "gguf", tmp_path / "out")
    (file,) = (tmp_path / "out").iterdir()
    ids, mask = batches(61, 24)["full"]
    model = llama_cpp.Llama(
        str(file), n_ctx=64, n_batch=64, logits_all=True, n_threads=1, verbose=False, type_k=0, type_v=0
    )
    model.eval(ids[0].tolist())
    got, want = torch.tensor(model.scores[: ids.shape[1]]), their_logits(peer(folder), ids, mask)[0]
    assert (got - want).abs().max() <= 2e-3 * want.abs().max()  # its GELU is a table in half precision


@pytest.mark.parametrize(
    ("stem", "settings", "message"),
    [
        (
            "Bloom",
            BLOOM | {"apply_residual_connection_post_layernorm": True},
            "nearest is bloom, but blocks.0.attn.norm",
        ),
        ("Falcon", FALCON | {"alibi": True}, "nearest is falcon, .*positions"),
        ("GPTNeoX", LONG | PART | {"hidden_act": "relu"}, "nearest is gptneox, .*activation"),
        ("Mpt", MPT | {"attn_config": {"softmax_scale": 0.3}}, "nearest is mpt, .*scale"),
        ("Phi", LONG | PART | {"qk_layernorm": True}, "nearest is phi2, .*qk_norm"),
        ("Starcoder2", LONG | {"sliding_window": 5, "num_key_value_heads": 2}, "nearest is starcoder2, .*mask"),
    ],
)
def test_what_a_file_cannot_say_is_refused(stem, settings, message, tmp_path):
    with pytest.raises(CheckpointError, match=f"no GGUF architecture can hold this model.*{message}"):
        file_of(stem, settings, tmp_path)
