"""Gradients of whole models: finite differences of the model's own loss, and of the reference's."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.reference import loss as reference
from cutaway.training.loss import cross_entropy
from tests.conformance.models import Inputs, check_slopes, difference, drawn
from tests.conformance.strategies import random_specs

N, EVERY = 360, 5
SPECS = list(random_specs(N, seed=7))
SMOOTHING = 0.1
RATES = spec.Dropout(embedding=0.1, attention=0.2, residual=0.1, hidden=0.3)
SOME_FAST = pytest.mark.parametrize(
    "index", [pytest.param(i, marks=[pytest.mark.slow] if i % EVERY else []) for i in range(N)]
)


def directions(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {name: torch.randn(p.shape, generator=generator).double() for name, p in model.named_parameters()}


def along(model: torch.nn.Module, direction: dict[str, torch.Tensor]) -> float:
    """The slope along a direction by the gradients; a parameter without one must not matter."""
    return sum(float((p.grad * direction[name]).sum()) for name, p in model.named_parameters() if p.grad is not None)


@SOME_FAST
def test_random_spec_in_training(index):
    """Whatever it gives out, and the load-balance losses, dropout included."""
    record = SPECS[index]
    model, given = drawn(record).train(), Inputs.of(record)
    weight = torch.randn(given.run(model).shape, generator=torch.Generator().manual_seed(5)).double()

    def value() -> torch.Tensor:
        torch.manual_seed(6)
        aux: list[torch.Tensor] = []
        return (given.run(model, aux=aux) * weight).sum() + sum(aux)

    value().backward()
    direction = directions(model)
    slope = difference(value, dict(model.named_parameters()), direction)
    assert abs(slope - along(model, direction)) <= 1e-6 * max(1.0, abs(slope))


def test_enough_of_every_kind_is_differentiated():
    fast = set().union(*(spec.kinds_in(record) for record in SPECS[::EVERY]))
    assert spec.pairs.all_kinds() - fast == set()
    assert set().union(*(spec.pairs_in(record) for record in SPECS)) >= set(spec.legal_pairs())


def stage(part: object) -> spec.Stage:
    return spec.Stage(branches=(spec.Branch(part=part, norm_in=spec.RMSNorm()),))


def block(*parts: object) -> spec.Block:
    return spec.Block(stages=tuple(stage(part) for part in parts))


def whole(kind: str, rates: spec.Dropout = spec.Dropout()) -> spec.Model:
    """A small model of two layers, one with experts that are to be balanced."""
    mask = {"encoder": spec.FullMask(), "prefix": spec.PrefixMask()}.get(kind, spec.CausalMask())
    attention = spec.MultiHead(n_heads=4, n_kv_heads=2, head_dim=4, mask=mask, positions=spec.RoPE())
    mixture = spec.MixtureOfExperts(
        n_experts=4, n_active=2, expert=spec.Gated(d_ff=6), shared=spec.SharedExpert(expert=spec.Dense(d_ff=4)),
        load_balance=0.1,
    )  # fmt: skip
    cross = [spec.Cross(n_heads=2)] if kind == "encoder_decoder" else []
    stack = {
        "vocab_size": 17, "context_length": 16, "final_norm": spec.RMSNorm(),
        "layers": (block(attention, *cross, spec.Gated(d_ff=10)), block(attention, *cross, mixture)),
    }  # fmt: skip
    common = {"d_model": 8, "dropout": rates}
    if kind == "encoder_decoder":
        full = attention.replace(mask=spec.FullMask())
        layers = (block(full, spec.Dense(d_ff=10)), block(full, mixture))
        sides = {"encoder": spec.Side(**stack | {"layers": layers}), "decoder": spec.Side(**stack)}
        return spec.EncoderDecoder(**common, **sides)
    return {"decoder": spec.Decoder, "encoder": spec.Encoder, "prefix": spec.PrefixDecoder}[kind](**common, **stack)


KINDS = ("decoder", "prefix", "encoder", "encoder_decoder")


def inputs_and_targets(record: spec.Model) -> tuple[Inputs, torch.Tensor]:
    given = Inputs.of(record)
    targets = given.ids.roll(-1, 1)
    targets[:, -1] = -100
    targets[0, :2] = -100
    return given, targets


def training_loss(model: torch.nn.Module, given: Inputs, targets: torch.Tensor) -> torch.Tensor:
    aux: list[torch.Tensor] = []
    return cross_entropy(given.run(model, aux=aux), targets, SMOOTHING) + sum(aux)


@pytest.mark.parametrize("rates", [spec.Dropout(), RATES], ids=["plain", "dropout"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_training_loss_of_each_kind(kind, rates):
    record = whole(kind, rates)
    model = drawn(record).train()
    given, targets = inputs_and_targets(record)

    def value() -> torch.Tensor:
        torch.manual_seed(6)
        return training_loss(model, given, targets)

    check_slopes(value, model)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_differences_of_the_reference(kind):
    """The slope of NumPy's loss, by differences alone, is what autograd says of torch's."""
    record = whole(kind)
    model = drawn(record).train()
    given, targets = inputs_and_targets(record)
    parameters, direction = dict(model.named_parameters()), directions(model)

    def defined() -> float:
        result = given.define(record, parameters)
        return reference.cross_entropy(result.output, targets.numpy(), SMOOTHING) + result.balance

    loss = training_loss(model, given, targets)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(defined(), rel=1e-12)
    for part in ("embedding", "attn", "cross", "ffn", "norm"):
        some = {name: p for name, p in parameters.items() if part in name}
        slope = difference(defined, some, direction)
        mine = sum(float((p.grad * direction[name]).sum()) for name, p in some.items())
        assert abs(slope - mine) <= 1e-7 * max(1.0, abs(slope)), part


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_logits_is_the_references(kind):
    record = whole(kind)
    given, targets = inputs_and_targets(record)
    logits = given.run(drawn(record)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(logits, targets, SMOOTHING), logits)
    wanted = reference.cross_entropy_gradient(logits.detach().numpy(), targets.numpy(), SMOOTHING)
    assert (gradient - torch.from_numpy(wanted)).abs().max() < 1e-15
