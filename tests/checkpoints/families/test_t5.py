"""T5 and mT5 against transformers: both versions, all classes, tied and own heads, texts, and the way back out."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from cutaway.parts.step import Given
from tests.checkpoints.families import tiny_encoders
from tests.checkpoints.families.tiny import batches, peer, rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_pairs import ours, same_outputs, same_texts

SMALL = {
    "vocab_size": 61, "d_model": 32, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4,
    "relative_attention_num_buckets": 12, "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
}  # fmt: skip
WRITES = "ForConditionalGeneration"


def folder_of(kind, path, **changes):
    return tiny(getattr(transformers, f"T5{kind}"), T5Config(**SMALL | changes), path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 2e-3},
        {"feed_forward_proj": "gelu", "num_decoder_layers": None, "dropout_rate": 0.0},
    ],
)
def test_the_class_that_writes(changes, tmp_path):
    folder = folder_of(WRITES, tmp_path / "in", **changes)
    model = same_outputs(folder)
    scaled = "tie_word_embeddings" not in changes
    assert model.spec.head == spec.LanguageHead(input_factor="1/sqrt_d_model" if scaled else 1.0)
    same_texts(folder)
    round_trip(folder, tmp_path / "out")


def own_head(folder):
    path = folder / "model.safetensors"
    table = load_file(path)
    table["lm_head.weight"] = torch.randn(61, 32)
    save_file(table, path, {"format": "pt"})
    return folder


@pytest.mark.parametrize("layout", ["v4", "v5"])
def test_a_head_of_its_own(layout, tmp_path):
    """v4 wrote that it is not tied; v5 says that it is, but not scaled, and has the matrix all the same."""
    folder = own_head(folder_of(WRITES, tmp_path / "in", tie_word_embeddings=False))
    if layout == "v4":
        rewrite(folder, ("scale_decoder_outputs",), tie_word_embeddings=False)
    model = same_outputs(folder)
    assert model.spec.head == spec.LanguageHead(tied=False)
    round_trip(folder, tmp_path / "out")


def test_mt5(tmp_path):
    folder = tiny(MT5ForConditionalGeneration, MT5Config(**SMALL), tmp_path / "in")
    model = same_outputs(folder)
    assert isinstance(model.spec.encoder.blocks[0].branches[1].part, spec.Gated)
    same_texts(folder, num_beams=3, length_penalty=0.5)
    round_trip(own_head(folder), tmp_path / "out")


@pytest.mark.parametrize("kind", ["Model", "ForQuestionAnswering"])
def test_other_classes_of_two_stacks(kind, tmp_path):
    folder = folder_of(kind, tmp_path / "in")
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("kind", ["EncoderModel", "ForTokenClassification"])
def test_the_encoder_alone(kind, tmp_path):
    folder = folder_of(kind, tmp_path / "in", num_labels=3, feed_forward_proj="gated-gelu")
    tiny_encoders.same_outputs(folder, sides=("full", "one", "right", "left"))
    round_trip(folder, tmp_path / "out")


def test_a_classifier_reads_the_state_for_the_end(tmp_path):
    folder = folder_of("ForSequenceClassification", tmp_path / "in", num_labels=3)
    model, their = open_checkpoint(folder).load(), peer(folder)
    source = torch.tensor([[5, 9, 7, 1], [8, 4, 6, 1]])
    with torch.no_grad():
        want = their(input_ids=source).logits
    target = torch.cat((torch.zeros(2, 1, dtype=torch.long), source[:, :-1]), 1)
    assert (ours(model, source, torch.ones_like(source), target) - want).abs().max() < 1e-5


def test_files_of_2019(tmp_path):
    """Every name of the table is stored, and an unused bias of the cross-attention."""
    folder = folder_of(WRITES, tmp_path)
    path = folder / "model.safetensors"
    table = load_file(path)
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"):
        table[name] = table["shared.weight"].clone()
    extra = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    table[extra] = torch.randn(12, 4)
    save_file(table, path, {"format": "pt"})
    late = ("scale_decoder_outputs", "tie_word_embeddings", "dense_act_fn", "is_gated_act", "feed_forward_proj")
    same_outputs(rewrite(folder, late, n_positions=512, output_past=True))
    assert list(open_checkpoint(folder).match.ignored) == [extra]


def test_padding_on_either_side_moves_no_bias(tmp_path):
    model = open_checkpoint(folder_of(WRITES, tmp_path)).load()
    ids, mask = batches(61, 20)["left"]
    target = torch.tensor([[0, 5, 6]] * 3)
    padded = ours(model, ids, mask, target)
    n = int(mask[1].sum())
    with torch.no_grad():
        alone = model(target[:1], Given(memory=model.encode(ids[1:2, -n:])))
    assert (padded[1] - alone[0]).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-gelu-new"}, "expected NAME or gated-NAME"),
        ({"is_decoder": True}, "is_decoder"),
        ({"dense_act_fn": "sine"}, "dense_act_fn is 'sine'"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(rewrite(folder_of(WRITES, tmp_path), **changes)).load()
