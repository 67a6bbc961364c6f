"""Experts run on the rows that chose them alone, on all rows where code is compiled, and all of them in training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from cutaway import spec
from cutaway.parts.build import Builder
from cutaway.parts.step import Given
from tests.conformance.alone import alone
from tests.conformance.models import drawn

STEP = SimpleNamespace(aux=None)


def mixture(**changes):
    record = spec.MixtureOfExperts(
        **{"n_experts": 6, "n_active": 2, "expert": spec.Gated(d_ff=5), "router": spec.Router(factor=1.5)} | changes
    )
    module, generator = Builder(8, spec.Dropout()).part(record).double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def rows(n=7):
    return torch.randn(2, n, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 7])
def test_the_sum_over_all_experts(n):
    module, x = mixture(shared=spec.SharedExpert(expert=spec.Gated(d_ff=3), gated=True)), rows(n)
    _, weights, chosen = module.router(x.flatten(0, 1))
    want = torch.zeros_like(x.flatten(0, 1))
    for row, (weight, picks) in enumerate(zip(weights, chosen, strict=True)):
        for share, index in zip(weight, picks.tolist(), strict=True):
            want[row] += share * module.experts[index](x.flatten(0, 1)[row], STEP, None)
    want = want.view_as(x) + module.shared_gate(x).sigmoid() * module.shared(x, STEP, None)
    assert torch.allclose(module(x, STEP, None), want, rtol=0, atol=1e-12)


def test_compiled_without_a_break_it_is_the_same():
    module, x = mixture(router=spec.Router(n_groups=3, n_active_groups=2, group_score="top2")), rows()
    compiled = torch.compile(lambda x: module(x, STEP, None), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.allclose(compiled(x), module(x, STEP, None), rtol=0, atol=1e-12)


def test_only_in_training_do_experts_without_a_row_run():
    module, x, ran = mixture(), rows(1)[:1], []
    for index, expert in enumerate(module.experts):
        expert.register_forward_hook(lambda *_, index=index: ran.append(index))
    chosen = sorted(module.router(x[0])[2].flatten().tolist())
    module(x, STEP, None)
    assert ran == chosen
    module.train()(x, STEP, None).sum().backward()
    idle = [expert for index, expert in enumerate(module.experts) if index not in chosen]
    assert len(ran) == 2 + 6 and all(not expert.up_proj.weight.grad.any() for expert in idle)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_no_share_in_the_balance(side):
    record = alone(spec.MixtureOfExperts(n_experts=4, n_active=2, expert=spec.Gated(d_ff=5), load_balance=0.1))
    model, row, pads = drawn(record), torch.tensor([[5, 2, 7]]), torch.tensor([[9, 9]])
    both = (pads, row) if side == "left" else (row, pads)
    mask = torch.cat([torch.full_like(each, int(each is row)) for each in both], 1)
    found: list[torch.Tensor] = []
    model(torch.cat(both, 1), Given(mask=mask, aux=found))
    model(row, Given(aux=found))
    assert abs(float(found[0].detach() - found[1].detach())) < 1e-12


def test_of_equal_experts_and_groups_the_first_are_chosen():
    module = mixture(router=spec.Router(n_groups=3, n_active_groups=2))
    module.router.weight.data.zero_()
    assert module.router(rows().flatten(0, 1))[2].tolist() == 14 * [[0, 1]]


def test_scores_that_all_vanish_give_nothing_not_nan():
    module = mixture(router=spec.Router(score="sigmoid", bias=True))
    module.router.bias.data.fill_(-1e4)
    assert torch.equal(module(rows(), STEP, None), torch.zeros_like(rows()))
