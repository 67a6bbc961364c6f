"""What lies beside a model of sentence-transformers: pooling, projection, normalisation, length; and broken files."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, T5Config, T5EncoderModel

import cutaway
from cutaway.encoding import Rows, vectors
from cutaway.errors import CheckpointError
from tests.checkpoints.families.tiny import batches, peer, tiny
from tests.checkpoints.families.tiny_encoders import SMALL

MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
MODES = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken", "max": "max_tokens"}


def write(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def lay_beside(folder, *kinds, pool="mean", **dense):
    """The files of the modules, as that library writes them."""
    names = [f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)]
    types = [f"sentence_transformers.models.{kind}" for kind in kinds]
    modules = [{"idx": i, "name": str(i), "path": names[i], "type": type_} for i, type_ in enumerate(types)]
    write(folder / "modules.json", modules)
    if "Pooling" in kinds:
        modes = {f"pooling_mode_{mode}": name == pool for name, mode in MODES.items()}
        write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, "include_prompt": True} | modes)
    if "Dense" in kinds:
        path = folder / "2_Dense"
        said = {
            "in_features": 32,
            "out_features": 7,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        }
        write(path / "config.json", said | dense)
        torch.manual_seed(3)
        weights = {"linear.weight": torch.randn(7, 32)} | (
            {"linear.bias": torch.randn(7)} if dense.get("bias", True) else {}
        )
        save_file(weights, path / "model.safetensors")
        return weights
    return {}


@pytest.fixture
def folder(tmp_path):
    return tiny(BertModel, BertConfig(**SMALL), tmp_path)


def states(folder):
    ids, mask = batches(61, 20)["right"]
    with torch.no_grad():
        return peer(folder)(input_ids=ids, attention_mask=mask).last_hidden_state, mask


def ours(folder):
    ids, mask = batches(61, 20)["right"]
    model = cutaway.load(folder).model
    return vectors(model, Rows([row[: int(n)].tolist() for row, n in zip(ids, mask.sum(1), strict=True)]))


@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
@pytest.mark.parametrize("normalise", [False, True])
def test_pooling(folder, pool, normalise):
    h, mask = states(folder)
    lay_beside(folder, "Transformer", "Pooling", *(["Normalize"] * normalise), pool=pool)
    want = {
        "mean": (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True),
        "cls": h[:, 0],
        "last": h[torch.arange(3), mask.sum(1) - 1],
    }[pool]
    want = torch.nn.functional.normalize(want, dim=1) if normalise else want
    assert (ours(folder) - want).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "function"), [("Tanh", torch.tanh), ("Identity", lambda x: x)])
def test_a_projection_in_a_file_of_its_own(folder, name, function):
    h, mask = states(folder)
    dense = lay_beside(folder, *MODULES, bias=name == "Tanh", activation_function=f"torch.nn.modules.x.{name}")
    mean = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    want = function(mean @ dense["linear.weight"].T + dense.get("linear.bias", 0.0))
    assert (ours(folder) - torch.nn.functional.normalize(want, dim=1)).abs().max() < 1e-5


def test_an_encoder_without_a_length_gets_one(tmp_path):
    config = T5Config(vocab_size=61, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4)
    folder = tiny(T5EncoderModel, config, tmp_path)
    lay_beside(folder, "Transformer", "Pooling", "Normalize")
    write(folder / "sentence_bert_config.json", {"max_seq_length": 11, "do_lower_case": False})
    record = cutaway.load(folder, tokenizer=False).spec
    assert (record.context_length, record.head.pool, record.head.normalise) == (11, "mean", True)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", lambda d: d[::-1], "modules Normalize, Dense, Pooling, Transformer; known are"),
        ("modules.json", lambda d: [{**d[0], "type": "x.SpladePooling"}], "modules SpladePooling"),
        ("modules.json", lambda d: [d[0], {**d[1], "path": "../1_Pooling"}], "outside of the folder"),
        ("modules.json", lambda d: {"a": 1}, "expected a list of modules"),
        (
            "1_Pooling/config.json",
            lambda d: d | {"pooling_mode_max_tokens": True},
            "pooling mean_tokens with max_tokens",
        ),
        ("1_Pooling/config.json", lambda d: d | {"pooling_mode_mean_tokens": False}, "of no kind"),
        ("1_Pooling/config.json", lambda d: d | {"word_embedding_dimension": 9}, "word_embedding_dimension"),
        ("1_Pooling/config.json", lambda d: d | {"mystery": 1}, "mystery"),
        ("2_Dense/config.json", lambda d: d | {"activation_function": "torch.nn.Mish"}, "activation Mish"),
        ("2_Dense/config.json", lambda d: d | {"out_features": None}, "out_features is missing"),
        ("2_Dense/config.json", lambda d: d | {"out_features": -3}, "width"),
        ("sentence_bert_config.json", lambda d: d | {"do_lower_case": True}, "do_lower_case"),
    ],
)
def test_what_is_refused(folder, file, change, message):
    lay_beside(folder, *MODULES)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 11, "do_lower_case": False})
    data = json.loads((folder / file).read_text())
    write(folder / file, change(data))
    with pytest.raises(CheckpointError, match=message):
        cutaway.load(folder)


def test_a_projection_without_its_weights(folder):
    lay_beside(folder, *MODULES)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2_Dense"):
        cutaway.load(folder)
