"""BERT against transformers: its classes and switches, files of the first release, and the way back out."""

from __future__ import annotations

import pytest
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig

from cutaway import spec
from cutaway.checkpoints import hf
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_encoders import SMALL, same_outputs

CLASSES = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]


def folder_of(kind, path, **changes):
    return tiny(getattr(transformers, f"Bert{kind}"), BertConfig(**SMALL | changes), path)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class(kind, tmp_path):
    n = 2 if kind == "ForQuestionAnswering" else 3
    folder = folder_of(kind, tmp_path / "in", num_labels=n, layer_norm_eps=2e-3)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu_new", "type_vocab_size": 3},
        {"hidden_act": "relu", "type_vocab_size": 1, "tie_word_embeddings": False},
        {"hidden_act": "silu", "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_dropout_prob": 0.3},
    ],
)
def test_every_switch(changes, tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path / "in", **changes)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


def test_padding_on_the_left_moves_positions_as_there(tmp_path):
    same_outputs(folder_of("ForMaskedLM", tmp_path), sides=("left",))


def test_the_pretraining_class_gives_its_masked_tokens(tmp_path):
    folder = folder_of("ForPreTraining", tmp_path)
    opened = open_checkpoint(folder)
    model, report = opened.load(), opened.match
    assert isinstance(model.spec.head, spec.MaskedHead)
    assert sorted(report.ignored) == [
        "bert.pooler.dense.bias", "bert.pooler.dense.weight", "cls.seq_relationship.bias", "cls.seq_relationship.weight"
    ]  # fmt: skip
    same_outputs(rewrite(folder, architectures=["BertForMaskedLM"]))


def test_trap_30_names_of_the_first_release(tmp_path):
    """gamma and beta, a stored range of positions, no prefix or heads that the class does not have."""
    folder = folder_of("ForPreTraining", tmp_path)
    same_outputs(rewrite(folder, architectures=["BertModel"]))
    path = folder / "model.safetensors"
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in load_file(path).items()}  # fmt: skip
    old["bert.embeddings.position_ids"] = old["cls.seq_relationship.bias"].long()[None].clone()
    save_file(old, path)
    same_outputs(rewrite(folder, architectures=["BertForMaskedLM"]))
    save_file({name.removeprefix("bert."): tensor for name, tensor in old.items() if "cls" not in name}, path)
    same_outputs(rewrite(folder, architectures=["BertModel"]))


def test_a_bare_model_without_a_pooler(tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path)
    model = open_checkpoint(rewrite(folder, architectures=["BertModel"])).load()
    assert model.spec.head == spec.VectorHead()


def test_labels_and_what_they_mean(tmp_path):
    names = {"0": "negative", "1": "neutral", "2": "positive"}
    folder = folder_of("ForSequenceClassification", tmp_path / "in", num_labels=3)
    rewrite(folder, id2label=names, label2id={name: int(i) for i, name in names.items()})
    assert hf.read_spec(folder)[0].head.labels == ("negative", "neutral", "positive")
    assert hf.read_spec(folder)[0].head.problem == "single_label"
    assert hf.read_spec(rewrite(folder, problem_type="regression"))[0].head.problem == "regression"
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
        (
            {"architectures": ["BertForSequenceClassification"], "problem_type": "ranking"},
            "problem_type is 'ranking'; known are multi_label_classification, regression",
        ),
        ({"architectures": ["BertForNextSentencePrediction"]}, "supported are BertModel, BertForMaskedLM"),
        ({"architectures": ["BertLMHeadModel"]}, "not supported"),
        ({"mystery": 1}, "mystery.*not understood"),
        ({"id2label": {"0": "a", "2": "b"}}, "a name for each of the 2 classes"),
    ],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = folder_of("ForSequenceClassification", tmp_path)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(rewrite(folder, **changes)).load()


def test_a_classifier_without_its_matrix_is_incomplete(tmp_path):
    folder = folder_of("ForPreTraining", tmp_path)
    with pytest.raises(CheckpointError, match="classifier.bias is missing"):
        open_checkpoint(rewrite(folder, architectures=["BertForSequenceClassification"])).load()
