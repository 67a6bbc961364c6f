"""Of a prompt whose last logits alone are asked for, the last block's feed-forward network reads one row."""

from __future__ import annotations

import pytest
import torch

import cutaway
from cutaway import Given, spec
from cutaway.generation import generate

IDS = torch.tensor([[5, 7, 9, 2], [0, 0, 3, 8]])
MASK = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
PRESETS = ("modern-tiny", "textbook-tiny", "gpt2-tiny", "course-gpt-tiny")


def rows_read(model, forward):
    """How many rows the feed-forward network of each block reads."""
    seen, (kind,) = [], {type(block.ffn) for block in model.blocks}
    own = kind.forward

    def spy(ffn, x, step, cache):
        seen.append(x.shape[1])
        return own(ffn, x, step, cache)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", spy)
        forward()
    return seen


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("mask", [None, MASK])
def test_the_last_row_is_that_of_all(preset, mask):
    model = cutaway.build(cutaway.preset(preset), seed=0).double().eval()
    given = Given(mask=mask)
    one, whole = model(IDS, given, last=True), model(IDS, given)
    assert one.shape == (2, 1, whole.shape[-1])
    assert (one - whole[:, -1:]).abs().max() <= 1e-12


def test_the_last_network_reads_one_row_unless_somebody_looks():
    model = cutaway.build(cutaway.preset("modern-tiny"), seed=0).eval()
    last = lambda: model(IDS, last=True)
    assert rows_read(model, last) == [4, 1]
    assert rows_read(model, lambda: model(IDS)) == [4, 4]
    with cutaway.record(model, "blocks.1.ffn.hidden") as run:
        assert rows_read(model, last) == [4, 4]
    assert run["blocks.1.ffn.hidden"].shape[1] == 4
    shapes = []
    handle = model.blocks[1].ffn.down_proj.register_forward_hook(lambda m, x, y: shapes.append(y.shape[1]))
    assert rows_read(model, last) == [4, 4] and shapes == [4]
    handle.remove()
    assert rows_read(model, last) == [4, 1]
    handle = model.final_norm.register_forward_hook(lambda m, x, y: shapes.append(y.shape[1]))
    assert rows_read(model, last) == [4, 4] and shapes == [4, 4]


class Doubled(torch.nn.Module):
    """A block of somebody else: the block that it holds, its output doubled."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, step, cache):
        return 2 * self.block(x, step, cache)


def test_a_block_of_another_kind_takes_the_place_of_one():
    model = cutaway.build(cutaway.preset("modern-tiny"), seed=0).double().eval()
    model.blocks[1] = Doubled(model.blocks[1])
    assert (model(IDS, last=True) - model(IDS)[:, -1:]).abs().max() <= 1e-12
    written = generate(model, [[5, 7, 9]], spec.Generation(max_tokens=3)).ids[0]
    for n, token in enumerate(written):
        assert int(model(torch.tensor([[5, 7, 9, *written[:n]]]))[0, -1].argmax()) == token


def test_hooks_on_the_last_norm_and_on_gradients_see_all_rows():
    model, shapes = cutaway.build(cutaway.preset("modern-tiny"), seed=0).eval(), []
    handle = model.final_norm.register_forward_hook(lambda m, x, y: shapes.append(y.shape[1]))
    model(IDS, last=True)
    handle.remove()
    down = model.blocks[1].ffn.down_proj
    down.register_full_backward_hook(lambda m, before, after: shapes.append(after[0].shape[1]))
    model.requires_grad_()
    model(IDS, last=True).sum().backward()
    assert shapes == [4, 4]


def test_the_balance_of_experts_counts_all_tokens():
    record = cutaway.preset("modern-tiny")
    attn, ffn = record.blocks[0].stages
    part = spec.MixtureOfExperts(n_experts=4, n_active=2, expert=spec.Gated(d_ff=8), load_balance=0.1)
    ffn = ffn.replace(branches=(ffn.branches[0].replace(part=part),))
    model = cutaway.build(record.replace(layers=(spec.Block(stages=(attn, ffn)),)), seed=0).eval()
    one, whole = [], []
    model(IDS, Given(aux=one), last=True)
    model(IDS, Given(aux=whole))
    assert one == whole and len(one) == 1


def test_a_block_whose_parts_stand_side_by_side_reads_all_rows():
    record = cutaway.preset("modern-tiny")
    attn, ffn = record.blocks[0].stages
    stage = attn.replace(branches=attn.branches + ffn.branches)
    record = record.replace(layers=(spec.Block(stages=(stage,)),))
    model = cutaway.build(record, seed=0).double().eval()
    assert rows_read(model, lambda: model(IDS, last=True)) == [4]
    assert (model(IDS, last=True) - model(IDS)[:, -1:]).abs().max() <= 1e-12
