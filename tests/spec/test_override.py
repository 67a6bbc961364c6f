"""`--set path=value`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from cutaway import spec
from cutaway.errors import SpecError
from tests.conformance.strategies import any_spec

TINY = spec.preset("gpt2-tiny")


def changed(values, base=TINY):
    return spec.set_values(base, values)


def attn(record, layer=0):
    return next(branch.part for branch in record.blocks[layer].branches if branch.name == "attn")


def ffn(record, layer=0):
    return next(branch.part for branch in record.blocks[layer].branches if branch.name == "ffn")


def refusal(values, base=TINY):
    with pytest.raises(SpecError) as caught:
        spec.set_values(base, values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_field_found_anywhere_is_set_everywhere():
    record = changed({"n_heads": "8"}, spec.preset("original-2017-tiny"))
    parts = [branch.part for stack in spec.stacks(record).values() for b in stack.blocks for branch in b.branches]
    assert {part.n_heads for part in parts if hasattr(part, "n_heads")} == {8}


def test_a_branch_name_leads_to_its_part_and_to_its_norms():
    record = changed({"ffn.d_ff": "100", "attn.norm_in.eps": "1e-3", "attn.qk_norm.kind": "qk_norm"})
    assert ffn(record).d_ff == 100
    assert {b.norm_in.eps for block in record.blocks for b in block.branches} == {1e-3, 1e-5}
    assert attn(record).qk_norm == spec.QKNorm()


def test_a_branch_may_be_set_whole():
    record = changed({"ffn": '{kind = "gated", d_ff = 7}', "attn.mask": spec.SlidingMask(window=2).plain()})
    assert ffn(record) == spec.Gated(d_ff=7)
    assert attn(record).mask == spec.SlidingMask(window=2)


def test_absolute_paths_and_items():
    record = changed({"layers.0.blocks.0.stages.1.branches.*.norm_in.eps": "0.5", "embedding.factor": "2"})
    assert [b.norm_in.eps for b in record.blocks[1].branches] == [1e-5, 0.5]
    assert record.embedding.factor == 2.0


def test_one_layer_as_it_runs():
    record = changed({"n_layers": "5", "blocks.3.attn.kind": "no_attn", "blocks.0.n_heads": "2"})
    assert [getattr(attn(record, n), "n_heads", None) for n in range(5)] == [2, 4, 4, None, 4]
    assert [layer.kind for layer in record.layers] == ["block", "repeat", "block", "block"]


def test_one_side_of_two():
    record = changed({"encoder.n_layers": "3", "decoder.d_ff": "9"}, spec.preset("t5-tiny"))
    assert (len(record.encoder.blocks), len(record.decoder.blocks)) == (3, 2)
    assert ffn(record.decoder).d_ff == 9
    assert ffn(record.encoder).d_ff == 256


@pytest.mark.parametrize("kind", ["rope", "alibi", "t5"])
@pytest.mark.parametrize("base", ["gpt2-tiny", "original-2017-tiny", "bert-tiny"])
def test_a_relative_kind_replaces_the_absolute_one(base, kind):
    record = changed({"positions.kind": kind}, spec.preset(base))
    assert {pair.positions for pair in spec.pairs_in(record)} == {kind}


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "none"])
def test_an_absolute_kind_replaces_the_relative_one(kind):
    record = changed({"positions.kind": kind}, spec.preset("modern-tiny"))
    assert {pair.positions for pair in spec.pairs_in(record)} == {kind}
    if kind == "learned":
        assert record.embedding.positions.n_positions == record.context_length


def test_both_kinds_stay_where_only_one_place_is_named():
    record = changed({"attn.positions.kind": "rope", "attn.positions.base": "5e5"})
    assert attn(record).positions == spec.RoPE(base=5e5)
    assert isinstance(record.embedding.positions, spec.Learned)


def test_t5_buckets_look_both_ways_where_the_mask_does():
    record = changed({"positions.kind": "t5"}, spec.preset("original-2017-tiny"))
    assert attn(record.encoder).positions.bidirectional
    assert not attn(record.decoder).positions.bidirectional


def test_a_switch_keeps_what_both_kinds_share_and_fits():
    record = changed({"ffn.kind": "gated"})
    assert ffn(record) == spec.Gated(d_ff=256, activation="gelu_tanh", up_bias=True, down_bias=True)
    assert ffn(changed({"activation": "removed"}, record)).activation == "removed"
    back = changed({"ffn.kind": "dense"}, changed({"activation": "removed"}, record))
    assert ffn(back).activation == "relu"  # `removed` is no activation of a dense network
    norms = changed({"norm_in.kind": "rmsnorm", "final_norm.kind": "rmsnorm"})
    assert norms.final_norm == spec.RMSNorm(eps=1e-5)  # its eps is kept, its gain is of another type


def test_values_are_read_as_toml_and_words_as_words():
    record = changed({"name": "007", "head.tied": "false", "generation.stop_ids": "[3, 4]", "attn.scale": "1"})
    assert (record.name, record.head.tied, record.generation.stop_ids) == ("007", False, (3, 4))
    assert attn(record).scale == 1.0
    assert changed({"generation.stop_strings": '["a", "b\\n"]'}).generation.stop_strings == ("a", "b\n")


def test_number_of_layers():
    assert changed({"n_layers": "0"}).blocks == ()
    pattern = spec.Repeat(times=2, blocks=(TINY.blocks[0], changed({"mask.kind": "full"}).blocks[0]))
    mixed = TINY.replace(layers=(TINY.blocks[0], pattern))
    assert len(changed({"n_layers": "7"}, mixed).blocks) == 7
    assert "6 layers do not fit; legal: 1 and any multiple of 2 more" in refusal({"n_layers": "6"}, mixed)
    assert "no layer to repeat" in refusal({"n_layers": "3"}, TINY.replace(layers=()))
    assert "'many' is not a number of layers" in refusal({"n_layers": "many"})
    assert "-1 is not a number of layers" in refusal({"n_layers": "-1"})


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("n_head", "8", "n_head: no field or branch is named 'n_head'; the nearest right one is 'n_heads'"),
        ("attn.n_head", "8", "attn.n_head: no field or branch is named 'n_head'; the nearest right one is 'n_heads'"),
        ("embeding.factor", "2", "the nearest right one is 'embedding'"),
        ("window", "4", "nothing here has 'window'; it belongs to sliding: set the kind first"),
        ("cross.n_heads", "4", "no layer here has a branch 'cross'"),
        ("layers.7.times", "4", "no item 7; there are 1, counted from 0"),
        ("d_model.x", "4", "'x' leads into a plain value"),
        ("d_model.kind", "x", "there is no kind to set here"),
        ("positions.kind", "ropee", "'ropee' is not one of none, sinusoidal, learned, rope, alibi, t5; the nearest"),
        ("ffn.kind", "swiglu", "ffn.kind: 'swiglu' is not one of no_attn, multi_head"),
        ("d_model", "wide", "spec.d_model: should be a valid integer, got 'wide'"),
        ("n_heads", "7", "7 heads cannot share d_model 64 equally; head_dim is auto; legal: 1, 2, 4, 8, 16, 32, 64"),
        ("kind", "encoder", "a language head has no place in an encoder; legal: masked, classes, vectors"),
        ("", "1", "no field or branch is named ''"),
    ],
)
def test_a_wrong_path_or_value_is_refused_with_what_is_right(path, value, message):
    assert message in refusal({path: value})


def test_a_value_never_reaches_past_its_own_key():
    assert "should be a valid integer" in refusal({"n_heads": "4\nd_model = 8"})


def test_a_kind_must_fit_every_place_reached():
    record = changed({"attn.qk_norm.kind": "qk_norm"})
    assert "'none' is not one at every place reached" in refusal({"norm.kind": "none"}, record)


@settings(max_examples=25)
@given(any_spec())
def test_setting_nothing_or_what_is_there_changes_nothing(record):
    blocks = {stack: part.blocks for stack, part in spec.stacks(record).items()}
    for values in ({}, {"d_model": record.d_model, "head": record.head.plain()}):
        same = spec.set_values(record, values)
        assert {stack: part.blocks for stack, part in spec.stacks(same).items()} == blocks
        stacks = {name: getattr(record, name) for name in ("encoder", "decoder", "layers") if hasattr(record, name)}
        assert same.replace(**stacks) == record  # but for equal layers, which are folded into a repeat


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("layers", "none", "layers: 'none' is neither a block nor a repeat"),
        ("layers", "3", "layers: '3' is neither"),
        ("layers", '[{kind = "repeat"}]', "layers: .* is neither"),
        ("layers", "[" * 3000, "layers: .* is neither"),
        ("encoder", "3", "no field or branch is named 'encoder'"),
        ("n_layers", "99999999999", r"layers\.0\.times: should be less than or equal to 10000"),
        ("d_model", "9" * 30, "d_model: should be less than or equal to 9223372036854775807, got 9{30}"),
        ("d_model", "2147483629", "4 heads cannot share d_model 2147483629 equally; .* legal: 1, 2147483629"),
        ("attn.positions.rotary_dim", "2147483646", "legal: 2, 4, 6"),
    ],
)
def test_what_no_machine_holds_is_refused_at_once(path, value, message):
    record = spec.set_values(spec.preset("gpt2-tiny"), {"positions.kind": "rope"})
    with pytest.raises(SpecError, match=message):
        spec.set_values(record, {path: value})


def test_a_stack_that_is_none_is_told():
    with pytest.raises(SpecError, match="spec.encoder: should be a table"):
        spec.set_values(spec.preset("t5-tiny"), {"encoder": "3"})
    with pytest.raises(SpecError, match="even, at most 2147483646"):
        spec.set_values(spec.preset("llama-tiny"), {"attn.head_dim": 2147483646, "attn.positions.rotary_dim": 7})
