"""ModernBERT against transformers: windows and bases by layer, biases, heads, both layouts, and the way back out."""

from __future__ import annotations

import pytest
import transformers
from transformers import ModernBertConfig

from cutaway import spec
from cutaway.checkpoints import hf
from tests.checkpoints.families.tiny import rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_encoders import SMALL, same_outputs

CLASSES = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
IDS = {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}


def folder_of(kind, path, **changes):
    config = ModernBertConfig(**SMALL | IDS | {"local_attention": 6, "num_hidden_layers": 4} | changes)
    return tiny(getattr(transformers, f"ModernBert{kind}"), config, path)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class(kind, tmp_path):
    n = 2 if kind == "ForQuestionAnswering" else 3
    folder = folder_of(kind, tmp_path / "in", num_labels=n)
    same_outputs(folder)
    round_trip(folder, tmp_path / "out")


BASES = {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
         "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 30.0}}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True, "decoder_bias": False},
        {"hidden_activation": "silu", "classifier_activation": "relu", "norm_eps": 2e-3, "tie_word_embeddings": False},
        {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "local_attention": 3},
        {"rope_parameters": BASES, "embedding_dropout": 0.1, "attention_dropout": 0.2, "mlp_dropout": 0.3},
    ],
)
def test_every_switch(changes, tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path / "in", **changes)
    same_outputs(folder, tolerance=2e-5, sides=("full", "one", "right", "left"))
    round_trip(folder, tmp_path / "out")


def test_the_mean_over_real_tokens(tmp_path):
    folder = folder_of("ForSequenceClassification", tmp_path / "in", classifier_pooling="mean", num_labels=3)
    same_outputs(folder, sides=("full", "one", "right", "left"))
    round_trip(folder, tmp_path / "out")


def test_the_layout_of_version_4(tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path)
    old = {"global_attn_every_n_layers": 2, "global_rope_theta": 700.0, "local_rope_theta": 40.0}
    same_outputs(rewrite(folder, ("rope_parameters", "layer_types"), **old))
    record = hf.read_spec(rewrite(folder, local_rope_theta=None))[0]
    assert [block.branches[0].part.positions.base for block in record.blocks] == [700.0] * 4
    assert [type(block.branches[0].part.mask) for block in record.blocks] == [spec.FullMask, spec.TwoSidedMask] * 2
