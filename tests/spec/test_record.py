"""What a reader is told about a malformed spec: every fault once, by its path, with the nearest right choice."""

from __future__ import annotations

import pytest

from cutaway import spec
from cutaway.errors import SpecError
from cutaway.spec import Decoder, MultiHead, RoPE, parse
from cutaway.spec.attention import CausalMask, SlidingMask

ATTENTION = {"kind": "multi_head", "n_heads": 2}


def model(part=ATTENTION, **more):
    block = {"kind": "block", "stages": [{"branches": [{"part": part}]}]}
    return {"kind": "decoder", "d_model": 8, "vocab_size": 11, "context_length": 16, "layers": [block]} | more


def fault(data, where="spec"):
    with pytest.raises(SpecError) as caught:
        parse(data, where)
    return str(caught.value)


PART = "spec.layers.0.stages.0.branches.0.part"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (model(d_modle=9), "spec.d_modle: unknown key; the nearest right key is 'd_model'"),
        (model(ATTENTION | {"n_head": 2}), f"{PART}.n_head: unknown key; the nearest right key is 'n_heads'"),
        # the nearest of that very record, though another record has the very word
        (model(ATTENTION | {"soft_capp": 1.0}), f"{PART}.soft_capp: unknown key; the nearest right key is 'soft_cap'"),
        (model(ATTENTION | {"window": 4}), f"{PART}.window: unknown key; the nearest right key is 'mask.window'"),
        (model({"kind": "multi_head"}), f"{PART}.n_heads: missing; give it a value"),
        (model({"n_heads": 2}), f"{PART}.kind: missing; say which: no_attn, multi_head, latent, cross"),
        (model(ATTENTION | {"mask": {"kind": "slide"}}), f"{PART}.mask.kind: 'slide' is not one of full, causal"),
        (model(ATTENTION | {"mask": {"kind": "slidin"}}), "the nearest is 'sliding'"),
        (
            model(ATTENTION | {"positions": {"kind": "rope", "layout": "halve"}}),
            f"{PART}.positions.layout: 'halve' is not one of interleaved, halves; the nearest is 'halves'",
        ),
        (
            model(ATTENTION | {"n_kv_heads": 0}),
            f"{PART}.n_kv_heads: should be greater than or equal to 1 or 'n_heads', got 0",
        ),
        (model(d_model=True), "spec.d_model: should be a valid integer, got True"),
        (model(d_model=8.0), "spec.d_model: should be a valid integer, got 8.0"),
        (model(d_model="8"), "spec.d_model: should be a valid integer, got '8'"),
        (model(d_model=None), "spec.d_model: should be a valid integer, got None"),
        (model(generation=[]), "spec.generation: should be a table of keys, got []"),
        (model(layers=[{"kind": "block", "stages": []}]), "spec.layers.0.stages: is empty; give it at least one item"),
        (model(d_model=float("nan")), "spec: Out of range float values"),
        (model(d_model={1, 2}), "spec: a value of type set has no place in a spec"),
        ({}, "spec.kind: missing; say which: decoder, prefix, encoder, encoder_decoder, image_encoder"),
        (
            {"kind": "decode"},
            "spec.kind: 'decode' is not one of decoder, prefix, encoder, encoder_decoder, image_encoder; the nearest",
        ),
        ([1], "spec: should be a table of keys, got [1]"),
        (7, "spec: should be a table of keys, got 7"),
    ],
)
def test_a_fault_is_named_by_its_path(data, message):
    told = fault(data)
    assert message in told
    assert "\n" not in told


def test_one_fault_has_no_followers():
    assert fault(model(ATTENTION | {"n_head": 2})).count(";") == 1  # not: also a tuple that is now too short
    assert "at least 1 item" not in fault(model({"kind": "multi_head"}))


def test_the_same_fault_in_many_layers_is_told_once():
    layer = model(ATTENTION | {"n_head": 2})["layers"][0]
    assert fault(model() | {"layers": [layer] * 3}).endswith("'n_heads' (and at 2 other places)")


def test_many_faults_are_cut_short():
    assert fault(model(a=1, b=2, c=3, d=4, e=5, f=6)).endswith("and 2 more")


def test_where_leads_every_path():
    assert fault(model(d_model=0), "my.toml").startswith("my.toml.d_model: should be greater")


def test_records_are_frozen_hash_alike_and_change_by_replace_alone():
    part = MultiHead(n_heads=4, mask=SlidingMask(window=3))
    assert hash(part) == hash(MultiHead(n_heads=4, mask=SlidingMask(window=3)))
    with pytest.raises(ValueError, match="frozen"):
        part.n_heads = 2
    assert part.replace(n_heads=2).mask == SlidingMask(window=3)
    with pytest.raises(SpecError, match=r"MultiHead\.n_heads: should be greater"):
        part.replace(n_heads=0)
    with pytest.raises(SpecError, match=r"MultiHead\.heads: unknown key; the nearest right key is 'n_heads'"):
        part.replace(heads=2)


def test_plain_leaves_out_defaults_and_keeps_kinds():
    part = MultiHead(n_heads=4, mask=CausalMask(), positions=RoPE(base=10000.0))
    assert part.plain() == {"kind": "multi_head", "n_heads": 4, "positions": {"kind": "rope"}}
    assert set(part.plain(full=True)) == set(MultiHead.model_fields)
    assert MultiHead.parse(part.plain()) == MultiHead.parse(part.plain(full=True)) == part


def test_a_whole_number_serves_where_a_number_is_asked():
    assert parse(model(ATTENTION | {"scale": 1})).blocks[0].branches[0].part.scale == 1.0


def test_kind_comes_first():
    assert next(iter(Decoder.parse(model()).plain())) == "kind"


def test_what_is_auto_is_worked_out():
    heads = spec.MultiHead(n_heads=4, n_kv_heads=2)
    assert spec.sizes(heads, 64) == (4, 2, 16, 16, 16**-0.5)
    assert spec.sizes(heads.replace(head_dim=9, value_dim=5, scale=0.3), 64) == (4, 2, 9, 5, 0.3)
    latent = spec.Latent(n_heads=3, kv_rank=5, nope_dim=7, rope_dim=2, value_dim=4)
    assert spec.sizes(latent, 64) == (3, 3, 9, 4, 9**-0.5)
