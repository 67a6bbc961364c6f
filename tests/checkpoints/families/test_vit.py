"""ViT against transformers, both ways: images in, classes or states out."""

from __future__ import annotations

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTForMaskedImageModeling, ViTModel

import cutaway
from cutaway import spec
from cutaway.bench.speed import measure_speed
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.verify import verify
from cutaway.checkpoints.weights import open_weights
from cutaway.errors import CheckpointError, CutawayError, InputError
from cutaway.tracing.foreign import transformers
from tests.checkpoints.families.tiny import peer, rewrite, round_trip, tiny


def config(**changes):
    return ViTConfig(
        **{
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
            "image_size": 12, "patch_size": 4,
        } | changes
    )  # fmt: skip


def images(record, n=3):
    return torch.randn((n, *record.sizes), generator=torch.Generator().manual_seed(1))


def same_output(folder):
    model, theirs = open_checkpoint(folder).load(), peer(folder)
    given = images(model.spec.embedding)
    with torch.no_grad():
        out = theirs(given)
        want = out.logits if isinstance(model.spec.head, spec.ClassHead) else out.last_hidden_state
        got = model(given)
    assert got.shape == want.shape and (got - want).abs().max() <= 1e-5 * want.abs().max()
    return model, out


VARIANTS = [
    {},
    {"image_size": [8, 12], "patch_size": [4, 3], "num_channels": 1, "qkv_bias": False},
    {"hidden_act": "gelu_new", "layer_norm_eps": 2e-3, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2},
    {"id2label": {0: "cat", 1: "dog", 2: "hen"}, "label2id": {"cat": 0, "dog": 1, "hen": 2}, "patch_size": 12},
]


@pytest.mark.parametrize("changes", VARIANTS)
@pytest.mark.parametrize("model_class", [ViTForImageClassification, ViTModel])
def test_equals_the_peer_both_ways(model_class, changes, tmp_path):
    folder = tiny(model_class, config(**changes), tmp_path / "in")
    model, _ = same_output(folder)
    round_trip(folder, tmp_path / "out")
    assert "patches of" in str(model.spec)


def test_a_folder_is_verified_by_an_image_of_noise(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    record = verify(tiny(ViTForImageClassification, config(), tmp_path / "in"))
    assert record.verified and record.ids == [] and [peer.said for peer in record.peers] == [""]


def test_the_pooler_works_beside_the_states(tmp_path):
    folder = tiny(ViTModel, config(pooler_output_size=20, pooler_act="relu"), tmp_path)
    model, out = same_output(folder)
    seen = {}
    with torch.no_grad(), cutaway.listening(model, lambda name, x: seen.update({name: x}), "head.pooled"):
        model(images(model.spec.embedding))
    assert (seen["head.pooled"] - out.pooler_output).abs().max() < 1e-5


def test_names_of_the_class(tmp_path):
    folder = tiny(ViTForImageClassification, config(), tmp_path, save_original_format=False)
    assert "vit.layers.0.attention.q_proj.weight" in open_weights(folder).names()
    same_output(folder)


def test_other_images_are_named(tmp_path):
    model = open_checkpoint(tiny(ViTModel, config(), tmp_path)).load()
    for wrong in (torch.zeros(1, 3, 12, 8), torch.zeros(3, 12, 12), torch.zeros(1, 3, 12, 12, dtype=torch.long)):
        with pytest.raises(
            InputError, match=r"images: shape .*give floating-point numbers of shape \[images, 3, 12, 12\]"
        ):
            model(wrong)
    with pytest.raises(InputError, match="gives no next token"):
        cutaway.generate(model, [[1, 2]])


def test_a_stack_of_ids_is_no_image_encoder(tmp_path):
    folder = rewrite(tiny(ViTModel, config(), tmp_path), patch_size=5)
    with pytest.raises(CheckpointError, match="patches of 5 do not fill an image_height of 12"):
        open_checkpoint(folder).load()


@pytest.mark.parametrize(
    ("model_class", "changes", "message"),
    [
        (ViTForMaskedImageModeling, {}, "the class 'ViTForMaskedImageModeling' is not supported"),
        (ViTModel, {"image_size": [12]}, "image_size is .12., expected"),
        (ViTModel, {"image_size": "12"}, "image_size is '12', expected"),
        (ViTModel, {"use_mask_token": True}, "use_mask_token not understood"),
    ],
)
def test_what_is_refused(model_class, changes, message, tmp_path):
    made = config(encoder_stride=4) if model_class is ViTForMaskedImageModeling else config()
    folder = rewrite(tiny(model_class, made, tmp_path), **changes)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder).load()


def test_classes_by_name_and_what_is_no_image(tmp_path):
    labels = {"0": "cat", "1": "dog", "2": "car"}
    folder = rewrite(tiny(ViTForImageClassification, config(num_labels=3), tmp_path), id2label=labels)
    loaded = cutaway.load(folder)
    image = images(loaded.spec.embedding)[0]
    found = loaded.classify_image(image)
    want = loaded(image[None])[0].softmax(-1)
    assert [name for name, _ in found] == [labels[str(i)] for i in want.argsort(descending=True).tolist()]
    assert sum(share for _, share in found) == pytest.approx(1)
    for call in (loaded.embed, loaded.classify, loaded.generate):
        with pytest.raises(CutawayError, match="reads images, no texts"):
            call("a text")
    with pytest.raises(CutawayError, match="classes head gives no next token"):
        cutaway.generate(loaded.model, [[1, 2]])
    with pytest.raises(CutawayError, match="give floating-point numbers of shape"):
        loaded(torch.tensor([[1, 2]]))
    with pytest.raises(CutawayError, match="it gives no classes of an image"):
        cutaway.load("bert-tiny").classify_image(image)


def test_how_fast_it_reads(tmp_path):
    loaded = cutaway.load(tiny(ViTModel, config(), tmp_path))
    speed = measure_speed(loaded.model, loaded.spec.context_length)
    assert speed.reading > 0 and speed.writing is None


def test_its_tensors_are_not_told_by_name_beside_transformers(tmp_path):
    with pytest.raises(InputError, match="cutaway verify"):
        transformers(tiny(ViTForImageClassification, config(), tmp_path))
