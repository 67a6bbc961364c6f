"""GPT-2 against transformers: every switch of its configuration, its heads, and the way back out."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2ForTokenClassification,
    GPT2LMHeadModel,
    GPT2Model,
)

import cutaway
from cutaway.checkpoints import hf
from cutaway.checkpoints.convert import convert
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import TOKENS, batches, both_ways, peer, rewrite, same_logits, their_logits, tiny


def config(**changes):
    return GPT2Config(
        **{"vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48} | TOKENS | changes
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_inner": 40, "activation_function": "relu", "layer_norm_epsilon": 3e-3},
        {"scale_attn_weights": False, "activation_function": "gelu"},
        {"scale_attn_by_inverse_layer_idx": True, "activation_function": "silu"},
        {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False, "activation_function": "tanh"},
        {"reorder_and_upcast_attn": True, "tie_word_embeddings": False, "attn_pdrop": 0, "embd_pdrop": 0.2},
        {"n_layer": 1, "n_head": 1, "activation_function": "gelu_fast"},
    ],
)
def test_equals_the_peer_both_ways(changes, tmp_path):
    both_ways(GPT2LMHeadModel, config(**changes), tmp_path)


@pytest.mark.parametrize("model_class", [GPT2Model, GPT2ForSequenceClassification, GPT2ForTokenClassification])
def test_other_heads(model_class, tmp_path):
    both_ways(model_class, config(num_labels=3), tmp_path)


def test_files_of_2019(tmp_path):
    folder = tiny(GPT2LMHeadModel, config(), tmp_path / "in")
    late = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "tie_word_embeddings")
    rewrite(folder, late + ("n_inner", "add_cross_attention"), n_ctx=48, summary_type="cls_index")
    same_logits(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"architectures": ["GPT2DoubleHeadsModel"]}, "GPT2DoubleHeadsModel"),
        ({"activation_function": "mish"}, "activation_function is 'mish'"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = rewrite(tiny(GPT2LMHeadModel, config(n_layer=1), tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        hf.read_spec(folder)


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_gives_the_folders_logits_and_transformers_opens_it(tied, tmp_path):
    # its reader of these files knows one length, one vocabulary, and one width of the network
    folder = tiny(
        GPT2LMHeadModel, config(tie_word_embeddings=tied, n_positions=1024, vocab_size=50257), tmp_path / "in"
    )
    convert(folder, "gguf", tmp_path / "out")
    (file,) = (tmp_path / "out").iterdir()
    ids, mask = batches(61, 24)["full"]
    want = their_logits(peer(folder), ids, mask)
    ours = cutaway.load(file, tokenizer=False)
    assert (ours(ids) - want).abs().max() <= 1e-5 * want.abs().max()
    theirs = GPT2LMHeadModel.from_pretrained(tmp_path / "out", gguf_file=file.name, dtype=torch.float32).eval()
    assert (their_logits(theirs, ids, mask) - want).abs().max() <= 1e-5 * want.abs().max()
    convert(file, "hf", tmp_path / "back")
    same_weights = load_file(folder / "model.safetensors")
    assert all(torch.equal(x, same_weights[name]) for name, x in load_file(tmp_path / "back/model.safetensors").items())


def test_what_a_gguf_file_cannot_say_is_refused(tmp_path):
    folder = tiny(GPT2LMHeadModel, config(scale_attn_by_inverse_layer_idx=True), tmp_path / "in")
    with pytest.raises(CheckpointError, match="scale"):
        convert(folder, "gguf", tmp_path / "out")
