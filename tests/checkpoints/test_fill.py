"""Weights into a model: which names will do, and what is refused."""

from __future__ import annotations

import pytest
import torch

import cutaway
from cutaway.checkpoints import native
from cutaway.checkpoints.fill import fill, match
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.rules import Reshape, same
from cutaway.errors import CheckpointError
from cutaway.models import build
from cutaway.parts.linear import joined


class Tensors:
    where = "here"

    def __init__(self, tensors):
        self.tensors = tensors

    def names(self):
        return self.tensors

    def shape(self, name):
        return tuple(self.tensors[name].shape)

    def dtype(self, name):
        return self.tensors[name].dtype

    def read(self, name, out=None):
        return self.tensors[name] if out is None else out.copy_(self.tensors[name])

    def drop(self):
        pass


@pytest.fixture
def tied():
    record = cutaway.preset("modern-tiny")
    return record.replace(head=record.head.replace(tied=True))


def state_and_rules(record):
    state = dict(build(record, seed=1).named_parameters())
    table = "embedding.tokens.weight"
    others = [same(name, name) for name in state if name != table]
    return {k: v.detach() for k, v in state.items()}, [
        same("table", table),
        same("lm_head.weight", "head.weight"),
        *others,
    ]


def filled(record, tensors, rules, **more):
    model = build(record)
    found = match(record, Tensors(tensors), rules, **more)
    fill(model, Tensors(tensors), found, torch.float32)
    return model, found


@pytest.mark.parametrize("names", [("table",), ("lm_head.weight",), ("table", "lm_head.weight")])
def test_trap_29_either_name_of_a_tied_table_will_do_and_equal_copies_are_fine(tied, names):
    state, rules = state_and_rules(tied)
    table = state.pop("embedding.tokens.weight")
    model, report = filled(tied, state | {name: table.clone() for name in names}, rules)
    assert torch.equal(model.embedding.table.weight, table)
    assert [own for own, _ in report.copies] == list(names[1:])
    assert model.head.tied[0].weight is model.embedding.table.weight  # one memory


def test_copies_that_differ_are_refused(tied):
    state, rules = state_and_rules(tied)
    table = state.pop("embedding.tokens.weight")
    with pytest.raises(CheckpointError, match="lm_head.weight and table are one tensor in this model"):
        filled(tied, state | {"table": table, "lm_head.weight": table + 1}, rules)


def test_a_copy_of_another_shape_is_named(tied):
    state, rules = state_and_rules(tied)
    table = state.pop("embedding.tokens.weight")
    flat = same("flat", "head.weight", Reshape((table.numel(),), tuple(table.shape)))
    with pytest.raises(CheckpointError, match=r"flat has shape \(7,\), the configuration asks for embedding.tokens"):
        filled(tied, state | {"table": table, "flat": torch.zeros(7)}, [*rules, flat])


def test_no_copy_at_all_is_missing(tied):
    state, rules = state_and_rules(tied)
    del state["embedding.tokens.weight"]
    with pytest.raises(CheckpointError, match="tensor table is missing"):
        filled(tied, state, rules)


def test_a_tensor_without_a_place_is_refused(tied):
    state, rules = state_and_rules(tied)
    state["table"] = state.pop("embedding.tokens.weight")
    with pytest.raises(CheckpointError, match="bias is not understood: the model .* has no place for it"):
        filled(tied, state | {"bias": torch.zeros(3)}, [*rules, same("bias", "head.bias")])
    assert filled(tied, state | {"bias": torch.zeros(3)}, rules, ignored=("bia*",))[1].ignored == {"bias": "bia*"}


def test_blocks_are_unpacked_side_by_side_and_plain_tensors_stay_on_the_file(tmp_path):
    model = build(cutaway.preset("llama-tiny"), seed=0)
    native.save(model, tmp_path / "own")
    for dtype, beside in (("Q8_0", True), ("F32", False)):
        cutaway.convert(tmp_path / "own", "gguf", tmp_path / dtype, dtype=dtype)
        read = open_checkpoint(tmp_path / dtype).load()
        attn, ffn = read.blocks[1].attn, read.blocks[1].ffn
        for maps in ((attn.q_proj, attn.k_proj, attn.v_proj), (ffn.gate_proj, ffn.up_proj)):
            one = joined(maps)
            assert (one is not None) == beside
            if beside:
                assert torch.equal(one, torch.cat([each.weight for each in maps]))
        for name, weight in model.state_dict().items():
            off = (read.get_parameter(name) - weight).abs().max()
            assert off <= (weight.abs().max() / 200 if beside else 0)
