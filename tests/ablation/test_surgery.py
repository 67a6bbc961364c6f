"""Removing parts: the model that is left is the whole model with the part's tensors replaced by hand."""

from __future__ import annotations

import pytest
import torch

from cutaway import build, preset, remove, spec
from cutaway.ablation.knobs import WITHOUT, choose, knobs, listed
from cutaway.errors import CutawayError, InputError
from cutaway.generation import generate
from cutaway.tap import listening
from cutaway.tracing.edit import edit, knock_out
from cutaway.tracing.record import record
from tests.conformance.models import Inputs, drawn
from tests.conformance.strategies import random_specs

IDS = torch.tensor([[5, 3, 9, 1, 30], [2, 2, 8, 0, 17]])


def everything() -> spec.Decoder:
    """A decoder that has a part of nearly every kind."""
    attn = spec.MultiHead(
        n_heads=4, n_kv_heads=2, positions=spec.RoPE(), qk_norm=spec.QKNorm(), clip=1.0, soft_cap=2.0, sinks=True,
        output_gate="per_head", value_dim=3,
    )  # fmt: skip
    first = spec.Stage(branches=(spec.Branch(part=attn, norm_in=spec.RMSNorm(), norm_out=spec.RMSNorm()),))
    gated = spec.Branch(part=spec.Gated(d_ff=12, alpha=1.7, up_offset=0.5), norm_in=spec.LayerNorm())
    block = spec.Block(stages=(first, spec.Stage(branches=(gated,), norm_sum=spec.LayerNorm())))
    places = spec.Learned(n_positions=16)
    return spec.Decoder(
        d_model=16, vocab_size=32, context_length=16, layers=(spec.Repeat(times=2, blocks=(block,)),),
        embedding=spec.TokenEmbedding(factor="sqrt_d_model", positions=places, norm=spec.LayerNorm()),
        final_norm=spec.RMSNorm(), head=spec.LanguageHead(soft_cap=3.0),
    )  # fmt: skip


def split(x, n):
    return x.unflatten(-1, (n, -1)).transpose(1, 2)


def uncapped(x, cap):
    return torch.where(x.isfinite(), cap * torch.atanh(x / cap), x)


def silent(x, place, axis):
    x = x.clone()
    x.select(axis, place).zero_()
    return x


BY_HAND = {
    "attn": {"attn.update": lambda x, at: 0 * x},
    "ffn": {"ffn.update": lambda x, at: 0 * x, "resid.1": lambda x, at: at.part.ffn.norm_sum(at("resid.0"))},
    "layer": {"resid_post": lambda x, at: at("resid_pre")},
    "attn.residual": {"resid.0": lambda x, at: at("attn.update")},
    "ffn.residual": {"ffn.update": lambda x, at: x - at("resid.0")},
    "norm_in": {"attn.in": lambda x, at: at("resid_pre"), "ffn.in": lambda x, at: at("resid.0")},
    "norm_out": {"attn.update": lambda x, at: at("attn.out")},
    "norm_sum": {"resid.1": lambda x, at: at("resid.0") + at("ffn.update")},
    "final_norm": {"final": lambda x, at: at("blocks.1.resid_post")},
    "embedding.norm": {"embedded": lambda x, at: 4 * at("embedding.tokens") + at("embedding.position")},
    "embedding_factor": {"embedding.tokens": lambda x, at: x / 4},
    "embedding.positions": {"embedding.position": lambda x, at: 0 * x},
    "attn.positions": {"attn.q_rot": lambda x, at: at("attn.q"), "attn.k_rot": lambda x, at: at("attn.k")},
    "mask": {"attn.scores": lambda x, at: 2 * torch.tanh(at("attn.q_rot") @ at("attn.k_rot").repeat_interleave(2, 1).mT
                                                         / 2 / 2)},
    "scale": {"attn.q_rot": lambda x, at: 2 * x},
    "attn.soft_cap": {"attn.scores": lambda x, at: uncapped(x, 2.0)},
    "head.soft_cap": {"head.logits": lambda x, at: uncapped(x, 3.0)},
    "sinks": {"attn.pattern": lambda x, at: at("attn.scores").softmax(-1)},
    "qk_norm": {"attn.q": lambda x, at: split(at("attn.in") @ at.part.attn.q_proj.weight.T, 4).clamp(-1, 1),
                "attn.k": lambda x, at: split(at("attn.in") @ at.part.attn.k_proj.weight.T, 2).clamp(-1, 1)},
    "clip": {"attn.q": lambda x, at: at("attn.q_norm.normed") * at.part.attn.q_norm.weight,
             "attn.k": lambda x, at: at("attn.k_norm.normed") * at.part.attn.k_norm.weight,
             "attn.v": lambda x, at: split(at("attn.in") @ at.part.attn.v_proj.weight.T, 2)},
    "output_gate": {"attn.gate": lambda x, at: torch.ones_like(x)},
    "gate": {"ffn.gate": lambda x, at: torch.ones_like(x)},
    "head.1": {"attn.z": lambda x, at: silent(x, 1, 1)},
    "neurons.3": {"ffn.hidden": lambda x, at: silent(x, 3, -1)},
}  # fmt: skip


class At:
    """What passed the taps so far, by names within the block of the tensor at hand, and that block."""

    def __init__(self, model, name, seen):
        path = ".".join(name.split(".")[:2]) if name.startswith("blocks.") else ""
        self.seen, self.path, self.part = seen, path, model.get_submodule(path)

    def __call__(self, name):
        return self.seen[f"{self.path}.{name}" if self.path else name]


def by_hand(model, changes, ids=IDS):
    seen = {}

    def hear(name, x):
        for tail, change in changes.items():
            if name == tail or (name.startswith("blocks.") and name.split(".", 2)[2] == tail):
                x = change(x, At(model, name, seen))
        seen[name] = x
        return x

    with torch.no_grad(), listening(model, hear):
        return model(ids)


@pytest.fixture(scope="module")
def model():
    return drawn(everything())


@pytest.mark.parametrize("word", BY_HAND)
def test_what_is_left_is_the_model_with_the_part_taken_out_by_hand(model, word):
    with torch.no_grad():
        whole, left = model(IDS), remove(model, word)(IDS)
    torch.testing.assert_close(left, by_hand(model, BY_HAND[word]), rtol=1e-9, atol=1e-11)
    assert not torch.allclose(left, whole, rtol=1e-3)


def test_every_part_of_that_model_is_in_the_table(model):
    tried = {word.split(".")[-1] if not word[-1].isdigit() else word.split(".")[0].rstrip("s") for word in BY_HAND}
    assert tried == set(listed(model.spec))
    assert set(listed(model.spec)) < set(WITHOUT)


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "softmax_after"])
@pytest.mark.parametrize("normalise", [True, False])
def test_an_expert_is_never_chosen_and_the_others_weigh_as_the_router_says(score, normalise):
    router = spec.Router(score=score, normalise=normalise, factor=1.5)
    shared = spec.SharedExpert(expert=spec.Gated(d_ff=5))
    part = spec.MixtureOfExperts(n_experts=4, n_active=2, expert=spec.Gated(d_ff=6), router=router, shared=shared)
    block = spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=part),)),))
    model = drawn(spec.Decoder(d_model=8, vocab_size=32, context_length=16, layers=(block,)))
    x = model.embedding.tokens.weight[IDS.flatten()]
    ffn = model.blocks[0].ffn
    logits = x @ ffn.router.weight.T
    others = [0, 1, 3]
    scores = {"softmax": logits.softmax(-1), "sigmoid": logits.sigmoid(), "softmax_after": logits}[score][:, others]
    best = scores.topk(2)
    weights = best.values.softmax(-1) if score == "softmax_after" else best.values
    weights = weights / weights.sum(-1, keepdim=True) if normalise and score != "softmax_after" else weights
    wanted = ffn.shared(x, None, None)
    for row in range(len(x)):
        for place in range(2):
            expert = ffn.experts[others[int(best.indices[row, place])]]
            wanted[row] += 1.5 * weights[row, place] * expert(x[row], None, None)
    got = {}
    left = remove(model, "blocks.0.ffn.expert.2")
    with torch.no_grad(), listening(left, lambda name, x: got.update({name: x}), "*.update"):
        left(IDS)
    torch.testing.assert_close(got["blocks.0.ffn.update"].flatten(0, 1), wanted, rtol=1e-9, atol=1e-12)
    alone = remove(model, "shared")
    with torch.no_grad(), listening(alone, lambda name, x: got.update({name: x}), "*.update"):
        alone(IDS)
        whole = model(IDS)
    assert alone.blocks[0].ffn.shared is None and not torch.equal(alone(IDS), whole)
    with pytest.raises(InputError, match="1 experts may be left to choose 2 from"):
        remove(model, "experts[0:3]")


@pytest.mark.parametrize("name", ["t5-tiny", "original-2017-tiny"])
def test_both_sides_of_an_encoder_decoder_are_taken_apart(name):
    record = preset(name)
    model, given = drawn(record), Inputs.of(record)
    names = {knob.name for knob in knobs(record)}
    assert len(choose(record, ("encoder.scale" if "2017" in name else "encoder.attn.positions",))[0].names) == 1
    assert len(choose(record, ("encoder.norm",))) == 4 and len(choose(record, ("norm",))) == 10
    assert {"decoder.blocks.1.cross", "encoder.blocks.0.ffn", "decoder.blocks.0.attn.mask"} <= names
    with torch.no_grad():
        with edit(model, {"decoder.*.cross.update": lambda x: 0 * x}):
            wanted = given.run(model)
        torch.testing.assert_close(given.run(remove(model, "cross")), wanted)
        with edit(model, {"encoder.blocks.1.ffn.update": lambda x: 0 * x}):
            wanted = given.run(model)
        torch.testing.assert_close(given.run(remove(model, "encoder.blocks.1.ffn")), wanted)
        with edit(model, {"decoder.blocks.*.cross.z": lambda x: silent(x, 2, 1)}):
            wanted = given.run(model)
        torch.testing.assert_close(given.run(remove(model, "cross.head.2")), wanted)
    assert generate(remove(model, "blocks.0", "decoder.positions"), [[5, 3]], spec.Generation(max_tokens=3, start_id=0))


def test_several_at_once_are_one_after_the_other_and_the_whole_model_stays(model):
    before = {name: p.clone() for name, p in model.named_parameters()}
    words = ("blocks.1.ffn.neuron.3", "mask", "blocks.0.attn.heads[1:3]", "blocks.1.ffn.neuron.4", "final_norm")
    left, one = remove(model, *words), model
    for word in words:
        one = remove(one, word)
    with torch.no_grad():
        assert torch.equal(left(IDS), one(IDS))
        assert torch.equal(remove(model)(IDS), model(IDS))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert left.embedding.tokens.weight.data_ptr() == model.embedding.tokens.weight.data_ptr()


def test_a_removed_head_or_neuron_is_one_knocked_out(model):
    left = remove(model, "blocks.0.attn.head.1", "blocks.1.ffn.neuron[2:4]", "blocks.1.attn", "blocks.0.attn.head.3")
    edits = knock_out(heads=[(0, 1), (0, 3)], neurons=[(1, 2), (1, 3)]) | {"blocks.1.attn.update": lambda x: 0 * x}
    with torch.no_grad(), edit(model, edits):
        wanted = model(IDS)
    torch.testing.assert_close(left(IDS), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("blocks.1", ["blocks.1.layer"]),
        ("blocks[-1].ffn", ["blocks.1.ffn"]),
        ("blocks.0.norm", ["blocks.0.attn.norm_in", "blocks.0.attn.norm_out", "blocks.0.ffn.norm_in",
                           "blocks.0.ffn.norm_sum"]),
        ("blocks.0.attn.norm", ["blocks.0.attn.norm_in", "blocks.0.attn.norm_out"]),
        ("embedding.norm", ["embedding.norm"]),
        ("blocks.0.residual", ["blocks.0.attn.residual", "blocks.0.ffn.residual"]),
        ("*.scale", ["blocks.0.attn.scale", "blocks.1.attn.scale"]),
        ("soft_cap", ["blocks.0.attn.soft_cap", "blocks.1.attn.soft_cap", "head.soft_cap"]),
        ("blocks.1.attn.heads[2:]", ["blocks.1.attn.head.2", "blocks.1.attn.head.3"]),
        ("blocks.0.head.0", ["blocks.0.attn.head.0"]),
        ("blocks.0.attn.mask", ["blocks.0.attn.mask"]),
    ],
)  # fmt: skip
def test_a_word_means_the_parts_whose_names_end_so(model, word, names):
    assert [name for part in choose(model.spec, (word,)) for name in part.names] == names


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cross", "no such part; it has embedding_factor, positions, norm, layer, attn"),
        ("blocks.0.atn", r"did you mean blocks\.0\.attn\?"),
        ("blocks.7.ffn", "the model has layers 0 to 1"),
        ("blocks[5:2].ffn", r"blocks\[5:2\]\.ffn: the model has that part in other layers"),
        ("blocks.0.attn.head.4", r"blocks\.0\.attn\.head counts from 0 to 3"),
        ("blocks.0.mask.3", "no such part"),
        ("blocks[x].ffn", "neither a layer nor a range"),
    ],
)
def test_a_part_that_is_not_there_is_refused(model, word, message):
    with pytest.raises(InputError, match=message) as error:
        remove(model, word)
    assert "\n" not in str(error.value)


SPECS = list(random_specs(24, seed=31))


@pytest.mark.parametrize("index", [pytest.param(i, marks=[pytest.mark.slow] if i % 6 else []) for i in range(24)])
def test_every_part_of_any_model_can_be_removed_and_is_then_gone(index):
    record = SPECS[index]
    model, given = drawn(record), Inputs.of(record)
    for knob in knobs(record):
        if knob.n and knob.word != "expert":
            continue
        try:
            left = remove(model, knob.name + (".0" if knob.n else ""))
        except CutawayError as error:
            assert "experts may be left" in str(error) or "share_kv" in str(error)
            continue
        assert knob.n or knob.word == "layer" or knob.name not in {each.name for each in knobs(left.spec)}
        with torch.no_grad():
            assert given.run(left).isfinite().all(), knob.name


def test_what_is_left_is_saved_and_loaded(model, tmp_path):
    from cutaway.checkpoints import native
    from cutaway.checkpoints.opened import open_checkpoint

    left = remove(model, "blocks.0.attn.head.1", "mask", "positions")
    native.save(left, tmp_path)
    again = open_checkpoint(tmp_path).load(torch.float64)
    with torch.no_grad():
        assert torch.equal(again(IDS), left(IDS))


def test_a_preset_of_each_kind_lists_its_parts():
    for name, has in (
        ("gpt2-tiny", "neuron"),
        ("bert-tiny", "norm_sum"),
        ("t5-tiny", "cross"),
        ("modern-tiny", "gate"),
    ):
        assert has in listed(build(preset(name), seed=0).spec)


def test_the_one_norm_of_parallel_branches_is_taken_out():
    branches = tuple(spec.Branch(part=part) for part in (spec.MultiHead(n_heads=2), spec.Gated(d_ff=6)))
    block = spec.Block(stages=(spec.Stage(branches=branches, norm=spec.RMSNorm()),))
    left = remove(drawn(spec.Decoder(d_model=8, vocab_size=32, context_length=16, layers=(block,))), "attn.norm")
    with record(left, "blocks.0.resid_pre", "blocks.0.*.in") as run:
        left(IDS)
    for name in ("attn", "ffn"):
        assert torch.equal(run[f"blocks.0.{name}.in"], run["blocks.0.resid_pre"])


def test_an_encoder_of_images_is_taken_apart():
    attn = spec.MultiHead(n_heads=2, mask=spec.FullMask())
    block = spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=attn, norm_in=spec.LayerNorm()),)),))
    patches = spec.PatchEmbedding(
        image_height=4, image_width=4, patch_height=2, patch_width=2, positions=spec.Learned(n_positions=5)
    )
    record = spec.ImageEncoder(d_model=8, embedding=patches, layers=(block,), head=spec.ClassHead(n_classes=3))
    model, given = drawn(record), Inputs.of(record)
    assert {"positions", "attn", "head", "norm_in", "scale"} <= set(listed(record))
    with torch.no_grad():
        whole = given.run(model)
        for knob in knobs(record):
            left = given.run(remove(model, knob.name))
            assert left.isfinite().all() and not torch.equal(left, whole), knob.name
