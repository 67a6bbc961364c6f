"""Direct attributions sum to the logit, and a head's or neuron's share is what it writes, whatever stands behind it."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.errors import InputError
from cutaway.tracing.attribution import attribute
from cutaway.tracing.edit import Part, edit, zero
from cutaway.tracing.prompt import Prompt
from tests.conformance.models import drawn as model_of
from tests.tracing.test_knock_out import mixture
from tests.tracing.test_patching import drawn

IDS = torch.tensor([[5, 3, 9, 1, 7]])


def one_block(residual=spec.Add(), norm_out=spec.NoNorm(), **heads):
    """Without biases, so that heads and neurons write all of an update."""
    parts = spec.MultiHead(n_heads=4, n_kv_heads=2, **heads), spec.Gated(d_ff=12)
    stages = tuple(
        spec.Stage(branches=(spec.Branch(part=part, norm_in=spec.RMSNorm(), norm_out=norm_out),), residual=residual)
        for part in parts
    )
    layers = (spec.Block(stages=stages),)
    head = spec.LanguageHead(tied=False)
    record = spec.Decoder(d_model=16, vocab_size=32, context_length=16, layers=layers, head=head)
    return model_of(record).requires_grad_(False)


@pytest.mark.parametrize("by", ["branch", "head", "neuron"])
@pytest.mark.parametrize("name", ["modern-tiny", "gpt2-tiny", "textbook-tiny"])
def test_attributions_sum_to_the_logit(name, by):
    model = drawn(name)
    found = attribute(model, Prompt(IDS), token=11, position=2, by=by)
    assert float(found.values.sum()) == pytest.approx(float(model(IDS)[0, 2, 11]), rel=1e-9)
    assert len(found.labels) == len(set(found.labels)) == len(found.values)
    if by == "head":
        assert sum(".attn.head." in label for label in found.labels) == sum(
            branch.part.n_heads for block in model.spec.blocks for branch in block.branches if branch.name == "attn"
        )


def test_a_part_that_adds_nothing_is_given_nothing():
    model = drawn("modern-tiny")
    model.blocks[1].attn.o_proj.weight.zero_()
    found = attribute(model, Prompt(IDS), token=11)
    assert float(found.values[found.labels.index("blocks.1.attn")]) == 0.0
    assert float(found.values[found.labels.index("blocks.0.attn")]) != 0.0


@pytest.mark.parametrize("by", ["head", "neuron"])
@pytest.mark.parametrize(
    "more",
    [
        {"residual": spec.Add(scale=0.3)},
        {"residual": spec.Add(scale="channel")},
        {"norm_out": spec.RMSNorm(gain="one_plus"), "residual": spec.Add(scale="scalar")},
        {"norm_out": spec.LayerNorm(shift=False)},
        {"output_gate": "per_element"},
        {"output_gate": "per_head"},
    ],
)
def test_heads_and_neurons_account_for_all_that_is_written(more, by):
    model = one_block(**more)
    found = attribute(model, Prompt(IDS), token=11, position=2, by=by)
    assert float(found.values.sum()) == pytest.approx(float(model(IDS)[0, 2, 11]), rel=1e-9)
    values = dict(zip(found.labels, found.values.tolist(), strict=True))
    name = "blocks.0.attn" if by == "head" else "blocks.0.ffn"
    assert abs(values[f"{name}.rest"]) < 1e-9 and abs(values[f"{name}.{by}.3"]) > 1e-5
    whole = attribute(model, Prompt(IDS), token=11, position=2)
    assert sum(value for label, value in values.items() if label.startswith(name)) == pytest.approx(
        float(whole.values[whole.labels.index(name)])
    )


def test_the_share_of_a_head_is_what_is_missing_without_it():
    """Where nothing stands between the head and the logit but a number."""
    model = one_block(spec.Add(scale=0.3))
    model.blocks[0].ffn.down_proj.weight.data.zero_()
    model.final_norm = None
    found = attribute(model, Prompt(IDS), token=11, by="head")
    with edit(model, {"blocks.0.attn.z": zero(Part(heads=[2]))}):
        less = float(model(IDS)[0, -1, 11])
    share = float(found.values[found.labels.index("blocks.0.attn.head.2")])
    assert share == pytest.approx(float(model(IDS)[0, -1, 11]) - less)


def test_a_decoder_beside_an_encoder_is_split_with_its_cross_attention():
    model, prompt = drawn("t5-tiny"), Prompt(IDS, IDS[:, :3])
    for by in ("branch", "head", "neuron"):
        found = attribute(model, prompt, 11, by=by)
        assert float(found.values.sum()) == pytest.approx(float(prompt.run(model)[0, -1, 11]), rel=1e-9)
        assert ("blocks.1.cross.head.3" in found.labels) == (by == "head")


def test_latent_heads_are_split_and_experts_stay_whole():
    model = model_of(mixture()).requires_grad_(False)
    found = attribute(model, Prompt(IDS), 11, by="head")
    assert float(found.values.sum()) == pytest.approx(float(model(IDS)[0, -1, 11]), rel=1e-9)
    assert "blocks.1.attn.head.1" in found.labels and "blocks.1.ffn" in found.labels
    with pytest.raises(InputError, match="split by neuron"):
        attribute(model, Prompt(IDS), 11, by="neuron")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"token": 256}, "token 256: the vocabulary has the ids 0 to 255"),
        ({"token": -1}, "token -1"),
        ({"position": 5}, "position 5: the text has 5 tokens"),
        ({"prompt": Prompt(IDS.expand(2, -1))}, "give one text"),
    ],
)
def test_a_token_a_place_and_rows_that_are_not_there_are_named(asked, message):
    with pytest.raises(InputError, match=message):
        attribute(drawn("modern-tiny"), **{"prompt": Prompt(IDS)} | asked)
