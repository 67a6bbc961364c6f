"""BART and its relatives in code against transformers: classes, switches, texts, and the way back out."""

from __future__ import annotations

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.family import family_of
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_pairs import SMALL, batch, ours, same_outputs, same_texts, theirs

STEMS = ["Bart", "MBart", "Pegasus", "Marian", "M2M100", "Blenderbot"]


def folder_of(stem, kind, path, **changes):
    config = getattr(transformers, f"{stem}Config")(**SMALL | changes)
    return tiny(getattr(transformers, f"{stem}{kind}"), config, path)


def writes(stem):
    return "MTModel" if stem == "Marian" else "ForConditionalGeneration"


@pytest.mark.parametrize("stem", STEMS)
def test_the_class_that_writes(stem, tmp_path):
    folder = folder_of(stem, writes(stem), tmp_path / "in", scale_embedding=True)
    path = folder / "model.safetensors"
    table = load_file(path)
    if "final_logits_bias" in table:
        table["final_logits_bias"] += torch.randn(table["final_logits_bias"].shape)
        save_file(table, path, {"format": "pt"})
    same_outputs(folder)
    same_texts(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("stem", STEMS)
def test_the_class_without_a_head(stem, tmp_path):
    folder = folder_of(stem, "Model", tmp_path / "in", activation_function="relu", scale_embedding=False)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("stem", ["Bart", "MBart"])
def test_answers_and_classes(stem, tmp_path):
    folder = folder_of(stem, "ForQuestionAnswering", tmp_path / "answers", num_labels=2)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("stem", ["Bart", "MBart"])
def test_a_classifier_reads_the_state_for_the_end(stem, tmp_path):
    """Given the start id and the source without its end, ours reads the last state, theirs the one at the end id."""
    folder = folder_of(stem, "ForSequenceClassification", tmp_path / "in", num_labels=3, decoder_start_token_id=2)
    model, their = (
        open_checkpoint(folder).load(),
        getattr(transformers, f"{stem}ForSequenceClassification").from_pretrained(folder),
    )
    source = torch.tensor([[5, 9, 7, 2], [8, 4, 6, 2]])
    target = torch.cat((torch.full((2, 1), 2), source[:, :-1]), 1)
    mask = torch.ones_like(source)
    with torch.no_grad():
        want = their.eval()(input_ids=source, decoder_input_ids=target).logits
    assert (ours(model, source, mask, target) - want).abs().max() < 1e-5
    family = family_of(f"{stem}".lower(), "")
    assert family.to_config(model.spec)["architectures"] == [f"{stem}ForSequenceClassification"]


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True},
        {"forced_bos_token_id": 7},
        {"forced_bos_token_id": 7, "num_beams": 3, "forced_eos_token_id": 2},
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 3, "num_beams": 3, "min_new_tokens": 4},
        {"min_new_tokens": 6},
    ],
)
@pytest.mark.parametrize("stem", ["Bart", "M2M100"])
def test_options_of_generation(stem, options, tmp_path):
    folder = folder_of(stem, writes(stem), tmp_path)
    texts = same_texts(folder, **options)
    if "forced_bos_token_id" in options:
        assert {text[0] for text in texts} == {7}


def test_trap_forced_first_token_from_either_file(tmp_path):
    folder = folder_of("Bart", "ForConditionalGeneration", tmp_path)
    (folder / "generation_config.json").unlink()
    rewrite(folder, forced_bos_token_id=9, num_beams=2, no_repeat_ngram_size=3, min_length=4, max_length=8)
    read = hf.read_spec(folder)[0].generation
    assert read.forced_ids == (9,) and read.start_id == 2 and read.stop_ids == (2,) and read.pad_id == 1
    assert (read.n_beams, read.no_repeat_ngram_size, read.min_tokens, read.max_tokens) == (2, 3, 3, 7)


def test_a_folder_that_says_nothing_of_ids_has_the_class_defaults(tmp_path):
    folder = folder_of("Bart", "ForConditionalGeneration", tmp_path)
    (folder / "generation_config.json").unlink()
    rewrite(folder, ("eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id"))
    read = hf.read_spec(folder)[0].generation
    assert (read.start_id, read.stop_ids, read.end_forced_id, read.pad_id) == (2, (2,), 2, 1)
    assert hf.read_spec(rewrite(folder, forced_eos_token_id=None))[0].generation.end_forced_id == "none"


def test_two_vocabularies(tmp_path):
    folder = folder_of(
        "Marian", "MTModel", tmp_path / "in", share_encoder_decoder_embeddings=False, decoder_vocab_size=50
    )
    model = same_outputs(folder)
    assert (model.spec.encoder.vocab_size, model.spec.decoder.vocab_size) == (61, 50)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("stem", ["Bart", "Pegasus", "M2M100"])
def test_tables_of_their_own(stem, tmp_path):
    """Today's library unties source, target and head at once; older files untie the head alone."""
    folder = folder_of(stem, writes(stem), tmp_path / "in", tie_word_embeddings=False)
    assert same_outputs(folder).spec.shared_embedding is False
    round_trip(folder, tmp_path / "out")


def test_a_head_of_its_own_beside_a_shared_table(tmp_path):
    folder = folder_of("Bart", "ForConditionalGeneration", tmp_path)
    path = folder / "model.safetensors"
    table = load_file(path)
    table["lm_head.weight"] = torch.randn(61, 32)
    save_file(table, path, {"format": "pt"})
    model = open_checkpoint(rewrite(folder, tie_word_embeddings=False)).load()
    assert model.spec.shared_embedding and not model.spec.head.tied
    hidden = torch.randn(1, 1, 32)
    assert torch.allclose(torch.nn.functional.linear(hidden, model.head.weight), hidden @ table["lm_head.weight"].T)
    with pytest.raises(CheckpointError, match="no shared embedding"):
        family_of("bart", "").to_config(model.spec)


def test_a_stored_table_of_positions_is_what_is_read(tmp_path):
    """Older files of Marian have one; without it sinusoids are computed."""
    folder = folder_of("Marian", "MTModel", tmp_path)
    assert isinstance(open_checkpoint(folder).load().spec.encoder.embedding.positions, spec.Sinusoidal)
    path = folder / "model.safetensors"
    peer = transformers.MarianMTModel.from_pretrained(folder)
    table = load_file(path)
    for side in ("encoder", "decoder"):
        stored = getattr(peer.model, side).embed_positions.weight.detach()
        table[f"model.{side}.embed_positions.weight"] = stored + torch.randn(stored.shape)
    save_file(table, path, {"format": "pt"})
    assert isinstance(same_outputs(folder).spec.encoder.embedding.positions, spec.Learned)


def test_positions_from_pad_ids(tmp_path):
    """M2M-100: a pad token inside a text gets no position and the others count on."""
    folder = folder_of("M2M100", "ForConditionalGeneration", tmp_path)
    model, peer = (
        open_checkpoint(folder).load(),
        transformers.M2M100ForConditionalGeneration.from_pretrained(folder).eval(),
    )
    source, target = torch.tensor([[5, 1, 6, 7]]), torch.tensor([[2, 1, 8]])
    mask = torch.ones_like(source)
    want, got = theirs(peer, source, mask, target), ours(model, source, mask, target)
    assert (got - want).abs().max() < 1e-5
    assert model.spec.encoder.embedding.positions.counted == spec.FromIds(pad_id=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalize_before": True}, "normalize_before"),
        ({"is_decoder": True}, "is_decoder"),
        ({"architectures": ["BartForCausalLM"]}, "supported are BartForConditionalGeneration"),
        ({"encoder_kind": 1}, "encoder_kind.*not understood"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = folder_of("Bart", "ForConditionalGeneration", tmp_path)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(rewrite(folder, **changes)).load()


def test_batches_of_sources_equal_each_alone(tmp_path):
    folder = folder_of("Bart", "ForConditionalGeneration", tmp_path)
    model = open_checkpoint(folder).load()
    source, mask, target = batch(1, 61)
    together = ours(model, source, mask, target)
    for row in range(3):
        n = int(mask[row].sum())
        alone = ours(model, source[row : row + 1, :n], mask[row : row + 1, :n], target[row : row + 1])
        assert (together[row] - alone[0]).abs().max() < 1e-5
