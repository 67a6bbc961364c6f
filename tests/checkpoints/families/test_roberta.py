"""RoBERTa and its relatives against transformers: positions counted from ids, heads, and the way back out."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import CamembertConfig, RobertaConfig, XLMRobertaConfig

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from cutaway.parts.step import Given
from tests.checkpoints.families.tiny import rewrite, round_trip, tiny
from tests.checkpoints.families.tiny_encoders import SMALL, same_outputs

CLASSES = ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
BOTH_SIDES = ("full", "one", "right", "left")


def folder_of(kind, path, **changes):
    config = RobertaConfig(**SMALL | {"pad_token_id": 1, "type_vocab_size": 1} | changes)
    return tiny(getattr(transformers, f"Roberta{kind}"), config, path)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class(kind, tmp_path):
    n = 2 if kind == "ForQuestionAnswering" else 3
    folder = folder_of(kind, tmp_path / "in", num_labels=n, layer_norm_eps=2e-3)
    pooled = kind in ("Model", "ForSequenceClassification")  # theirs pools column 0, which may be padding
    same_outputs(folder, sides=("full", "one", "right") if pooled else BOTH_SIDES)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize("changes", [{"pad_token_id": 3}, {"type_vocab_size": 2, "tie_word_embeddings": False}])
def test_every_switch(changes, tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path / "in", **changes)
    same_outputs(folder, sides=BOTH_SIDES)
    round_trip(folder, tmp_path / "out")


@pytest.mark.parametrize(("config", "stem"), [(XLMRobertaConfig, "XLMRoberta"), (CamembertConfig, "Camembert")])
@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_relatives(config, stem, kind, tmp_path):
    tiny(getattr(transformers, f"{stem}{kind}"), config(**SMALL | {"pad_token_id": 1}), tmp_path)
    same_outputs(tmp_path)


def test_a_pad_id_inside_a_text_takes_the_pad_row_and_moves_the_rest(tmp_path):
    """Positions come from the ids, whatever the mask says."""
    folder = folder_of("Model", tmp_path)
    model, peer = open_checkpoint(folder).load(), transformers.RobertaModel.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 1, 6, 7, 1]])
    with torch.no_grad():
        want = peer(ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        got = model(ids, Given(mask=torch.ones_like(ids)))
    assert (got - want).abs().max() < 1e-5
    assert model.spec.embedding.positions == spec.Learned(n_positions=38, offset=2, counted=spec.FromIds(pad_id=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"is_decoder": True}, "is_decoder"), ({"architectures": ["RobertaForCausalLM"]}, "not supported")],
)
def test_what_is_refused(changes, message, tmp_path):
    folder = folder_of("ForMaskedLM", tmp_path)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(rewrite(folder, **changes)).load()
