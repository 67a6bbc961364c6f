from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway.reference.optimizers import AdamRule, Moments, adam, adamw, sgd

RNG = np.random.default_rng(0)
START, GRADIENTS = RNG.normal(size=(3, 2)), RNG.normal(size=(5, 3, 2))


def run_torch(make: type[torch.optim.Optimizer], **settings: object) -> np.ndarray:
    parameter = torch.nn.Parameter(torch.tensor(START))
    optimizer = make([parameter], **settings)
    for gradient in GRADIENTS:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    return parameter.detach().numpy()


@pytest.mark.parametrize(("step", "other"), [(adam, torch.optim.Adam), (adamw, torch.optim.AdamW)])
def test_five_steps_agree_with_torch(step: object, other: type[torch.optim.Optimizer]) -> None:
    rule, parameter, moments = AdamRule(0.1, 0.8, 0.95, 1e-6, 0.2), START, Moments.of(START)
    for gradient in GRADIENTS:
        parameter, moments = step(parameter, gradient, moments, rule)  # type: ignore[operator]
    expected = run_torch(other, lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)
    np.testing.assert_allclose(parameter, expected, atol=1e-14)
    assert moments.steps == 5


def test_sgd_with_momentum_agrees_with_torch() -> None:
    parameter, velocity = START, np.zeros_like(START)
    for gradient in GRADIENTS:
        parameter, velocity = sgd(parameter, gradient, velocity, 0.1, 0.9)
    np.testing.assert_allclose(parameter, run_torch(torch.optim.SGD, lr=0.1, momentum=0.9), atol=1e-14)


def test_trap_decay_alone_shrinks_by_lr_times_decay() -> None:
    after, _ = adamw(START, np.zeros_like(START), Moments.of(START), AdamRule(0.1, weight_decay=0.1))
    np.testing.assert_allclose(after, 0.99 * START)


def test_the_first_step_of_adam_is_lr_times_the_sign() -> None:
    after, _ = adam(START, GRADIENTS[0], Moments.of(START), AdamRule(0.1, eps=0.0))
    np.testing.assert_allclose(START - after, 0.1 * np.sign(GRADIENTS[0]))
