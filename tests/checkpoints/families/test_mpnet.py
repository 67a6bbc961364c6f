"""MPNet against transformers: positions counted from ids, biases by distance, heads, and the way back out."""

from __future__ import annotations

import pytest
import transformers
from transformers import MPNetConfig

from tests.checkpoints.families.tiny import round_trip, tiny
from tests.checkpoints.families.tiny_encoders import SMALL, same_outputs

CLASSES = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]


def folder_of(kind, path, **changes):
    config = MPNetConfig(**SMALL | {"pad_token_id": 1} | changes)
    return tiny(getattr(transformers, f"MPNet{kind}"), config, path)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class(kind, tmp_path):
    n = 2 if kind == "ForQuestionAnswering" else 3
    folder = folder_of(kind, tmp_path / "in", num_labels=n, layer_norm_eps=2e-3)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


def test_padding_on_the_left_moves_nothing(tmp_path):
    same_outputs(folder_of("ForMaskedLM", tmp_path), sides=("left", "right"))
