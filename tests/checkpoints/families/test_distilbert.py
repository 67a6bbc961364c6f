"""DistilBERT against transformers: its classes, stored sinusoids, and the way back out."""

from __future__ import annotations

import pytest
import transformers
from transformers import DistilBertConfig

from tests.checkpoints.families.tiny import rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_encoders import same_outputs

SMALL = {
    "vocab_size": 61, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 40
}  # fmt: skip
CLASSES = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]


def folder_of(kind, path, **changes):
    return tiny(getattr(transformers, f"DistilBert{kind}"), DistilBertConfig(**SMALL | changes), path)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class(kind, tmp_path):
    n = 2 if kind == "ForQuestionAnswering" else 3
    folder = folder_of(kind, tmp_path / "in", num_labels=n)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize(
    "changes", [{"activation": "relu", "tie_word_embeddings": False}, {"sinusoidal_pos_embds": True, "dropout": 0.2}]
)
def test_every_switch(changes, tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path / "in", **changes)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


def test_files_of_2019(tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path)
    same_outputs(rewrite(folder, ("activation", "tie_word_embeddings"), tie_weights_=True, output_past=True))
