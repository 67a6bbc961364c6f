"""ELECTRA against transformers: generator, discriminator, classifiers, narrow and full embeddings, the way back out."""

from __future__ import annotations

import pytest
import transformers
from transformers import ElectraConfig

from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_encoders import SMALL, same_outputs

CLASSES = ["Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification",
           "ForQuestionAnswering"]  # fmt: skip


def folder_of(kind, path, **changes):
    config = ElectraConfig(**SMALL | {"embedding_size": 24} | changes)
    return tiny(getattr(transformers, f"Electra{kind}"), config, path)


@pytest.mark.parametrize("width", [24, 32])
@pytest.mark.parametrize("kind", CLASSES)
def test_every_class(kind, width, tmp_path):
    folder = folder_of(kind, tmp_path / "in", embedding_size=width, layer_norm_eps=2e-3, hidden_act="relu")
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


def test_an_untied_generator(tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path / "in", tie_word_embeddings=False, type_vocab_size=1)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


def test_a_discriminator_read_as_a_bare_encoder(tmp_path):
    folder = rewrite(folder_of("ForPreTraining", tmp_path), architectures=["ElectraModel"])
    same_outputs(folder)
    assert len(open_checkpoint(folder).match.ignored) == 4


def test_the_summary_of_choices_is_refused(tmp_path):
    folder = rewrite(folder_of("Model", tmp_path), architectures=["ElectraForMultipleChoice"])
    with pytest.raises(CheckpointError, match="supported are ElectraModel, ElectraForMaskedLM"):
        open_checkpoint(folder).load()
