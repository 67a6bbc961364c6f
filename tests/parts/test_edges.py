"""Rows without a token, rows of padding alone, rows that do not fit: each works or is refused by name, never NaN."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from cutaway import build, preset, spec
from cutaway.errors import InputError, SpecError
from cutaway.generation import Cache
from cutaway.parts.feedforward import Gated
from cutaway.parts.moe import load_balance_loss
from cutaway.parts.step import Given
from cutaway.reference import feedforward as reference
from tests.conformance.alone import SPECS
from tests.conformance.models import Inputs, drawn


def pools(record: spec.Model) -> bool:
    return isinstance(record.head, (spec.ClassHead, spec.VectorHead)) and record.head.pool != "none"


IMAGES = [name for name in SPECS if isinstance(SPECS[name], spec.ImageEncoder)]  # every patch of which is real


def rows(given: Inputs, part: slice) -> Inputs:
    cut = {name: getattr(given, name) for name in ("ids", "source", "prefix", "mask", "source_mask")}
    return Inputs(**{name: None if each is None else each[part] for name, each in cut.items()})


@pytest.mark.parametrize("name", SPECS)
def test_an_empty_batch_gives_an_empty_answer(name):
    record = SPECS[name]
    model, given = drawn(record), Inputs.of(record)
    with torch.no_grad():
        shape = given.run(model).shape[1:]
        for n_tokens in (7, 1):  # one token has a path of its own
            aux: list[torch.Tensor] = []
            empty = rows(given, slice(0, 0))
            empty = empty if name in IMAGES else empty.columns(0, n_tokens)
            out = empty.run(model, Cache(spec.last_stack(record).blocks), aux)
            assert out.shape == ((0, *shape) if pools(record) or name in IMAGES else (0, n_tokens, *shape[1:]))
            assert all(float(each) == 0.0 for each in aux)


@pytest.mark.parametrize("name", [name for name in SPECS if name not in IMAGES])
def test_a_row_of_padding_alone_is_finite_and_moves_no_other(name):
    record = SPECS[name]
    model, given = drawn(record), Inputs.of(record)
    hidden = torch.tensor([[0], [1]])
    source_mask = None if given.source is None else hidden.expand_as(given.source)
    half = replace(given, mask=hidden.expand_as(given.ids), source_mask=source_mask)
    with torch.no_grad():
        if pools(record):
            with pytest.raises(InputError, match=f"pool {record.head.pool}: a row without"):
                half.run(model)
            return
        aux: list[torch.Tensor] = []
        out, alone = half.run(model, aux=aux), rows(given, slice(1, 2)).run(model)
        assert out.isfinite().all() and all(each.isfinite() for each in aux)
        assert (out[1] - alone[0]).abs().max() < 1e-11


def test_there_is_nothing_to_balance_without_a_token():
    scores, chosen = torch.rand(3, 4), torch.zeros(3, 2, dtype=torch.long)
    assert float(load_balance_loss(scores, chosen, torch.zeros(3, dtype=torch.bool))) == 0.0
    assert reference.load_balance(torch.empty(0, 4).numpy(), torch.empty(0, 4).numpy()) == 0.0


@pytest.mark.parametrize("counted", [spec.FromMask(), spec.ByColumn(), spec.FromIds(pad_id=1)])
def test_a_row_longer_than_the_table_is_refused(counted):
    table = spec.TokenEmbedding(positions=spec.Learned(n_positions=4, counted=counted))
    record = spec.Decoder(d_model=8, vocab_size=9, context_length=4, embedding=table, layers=())
    model, ids = drawn(record), torch.full((1, 5), 3)
    with torch.no_grad():
        assert model(ids[:, :4]).isfinite().all()
        with pytest.raises(InputError, match="5 tokens, but the model's context is 4; shorten"):
            model(ids)
        cache = Cache(())
        model(ids[:, :4], cache=cache)
        with pytest.raises(InputError, match="5 tokens, but the model's context is 4; shorten"):
            model(ids[:, :1], cache=cache)


def test_what_does_not_divide_is_refused():
    for heads, message in ((spec.MultiHead(n_heads=3), "3 heads cannot share d_model 8"),
                           (spec.MultiHead(n_heads=4, n_kv_heads=3), "4 query heads cannot share 3 key heads"),
                           (spec.MultiHead(n_heads=8, positions=spec.RoPE()), "RoPE turns pairs")):  # fmt: skip
        block = spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=heads),)),))
        with pytest.raises(SpecError, match=message):
            drawn(spec.Decoder(d_model=8, vocab_size=9, context_length=4, layers=(block,)))


def test_a_decoder_without_its_source_says_what_to_give():
    model = build(preset("original-2017-tiny"), seed=0)
    with pytest.raises(InputError, match="model.encode"):
        model(torch.tensor([[1, 2]]), Given())


@pytest.mark.parametrize("activation", ["identity", "silu"])
def test_what_a_hook_has_seen_is_not_written_over(activation):
    module, seen = Gated(spec.Gated(d_ff=8, activation=activation), 4, 0.0), []
    for name in ("gate_proj", "up_proj", "down_proj"):
        part = module.get_submodule(name)
        torch.nn.init.constant_(part.weight, 0.5)
        part.register_forward_hook(lambda part, x, y: seen.append((y, y.clone())))
    with torch.no_grad():
        module(torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0)), None, None)
    assert len(seen) == 3 and all(torch.equal(held, then) for held, then in seen)


def test_nothing_takes_the_place_of_a_whole_part():
    block = build(preset("modern-tiny"), seed=0).blocks[0]
    part = torch.nn.Identity()
    ways = (
        lambda: setattr(block, "ffn", part), lambda: delattr(block, "ffn"), lambda: block.add_module("ffn", part),
        lambda: block.register_module("ffn", part), lambda: block.set_submodule("ffn", part),
    )  # fmt: skip
    for way in ways:
        with pytest.raises(InputError, match="block.ffn: a part carries the norms of its stage"):
            way()
    kept = copy.deepcopy(block)
    assert kept.ffn is kept.stages[1].parts[0] is not block.ffn
