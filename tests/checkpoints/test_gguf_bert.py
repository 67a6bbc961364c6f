"""A small BERT into a GGUF file and back."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

import cutaway
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.gguf_encoders import POOLS
from cutaway.errors import CheckpointError
from cutaway.parts.step import Given
from tests.checkpoints.families.tiny import batches, tiny
from tests.checkpoints.families.tiny_encoders import SMALL
from tests.checkpoints.test_sentences import lay_beside
from tests.test_encoding import WORDS, words


@pytest.mark.parametrize("pool", ["none", "mean", "cls", "last"])
def test_states_and_pooled_vectors(pool, tmp_path):
    config = BertConfig(**SMALL | {"vocab_size": len(WORDS), "layer_norm_eps": 1e-5})
    folder = tiny(BertModel, config, tmp_path / "in")
    words().save(folder)
    if pool != "none":
        lay_beside(folder, "Transformer", "Pooling", "Normalize", pool=pool)
    convert(folder, "gguf", tmp_path / "out")
    before, after = cutaway.load(folder), cutaway.load(next((tmp_path / "out").glob("*.gguf")))
    assert after.encode("the cats sat.") == before.encode("the cats sat.")
    ids, mask = batches(len(WORDS), 20)["right"]
    types = (torch.arange(ids.shape[1]) > 7).long().expand(ids.shape)
    with torch.no_grad():
        want, got = (each.model(ids, Given(mask=mask, types=types)) for each in (before, after))
    if pool != "none":
        got = torch.nn.functional.normalize(got, dim=-1)
    assert (got - want).abs().max() < 1e-6


def test_what_the_format_has_no_place_for(tmp_path):
    folder = tiny(BertForMaskedLM, BertConfig(**SMALL), tmp_path / "in")
    with pytest.raises(CheckpointError, match="no GGUF architecture can hold this model"):
        convert(folder, "gguf", tmp_path / "out")
    other = tiny(BertModel, BertConfig(**SMALL | {"hidden_act": "relu"}), tmp_path / "relu")
    with pytest.raises(CheckpointError, match="activation"):
        convert(other, "gguf", tmp_path / "out")


def test_a_pooling_of_another_number_is_named():
    with pytest.raises(CheckpointError, match="pooling_type is 7; known are 0, 1, 2, 3"):
        Config({"pooling_type": 7}, "test").choice("pooling_type", POOLS, 0)
