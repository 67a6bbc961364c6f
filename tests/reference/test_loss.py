from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from cutaway.errors import InputError
from cutaway.reference import loss

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(2, 4, 7))
TARGETS = np.array([[0, 6, -100, 3], [2, -100, 1, 1]])


def test_even_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    assert abs(loss.cross_entropy(np.zeros((3, 8)), [0, 3, 7]) - math.log(8)) < 1e-15
    assert abs(loss.perplexity(math.log(8)) - 8) < 1e-12
    assert abs(loss.bits_per_byte(10 * math.log(2), 5) - 2) < 1e-12


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_agrees_with_torch_and_with_finite_differences(gradient: Any, smoothing: float) -> None:
    logits = torch.tensor(LOGITS.reshape(-1, 7), requires_grad=True)
    other = torch.nn.functional.cross_entropy(logits, torch.tensor(TARGETS.ravel()), label_smoothing=smoothing)
    other.backward()
    assert abs(loss.cross_entropy(LOGITS, TARGETS, smoothing) - other.item()) < 1e-14
    by_hand = loss.cross_entropy_gradient(LOGITS, TARGETS, smoothing)
    assert logits.grad is not None
    np.testing.assert_allclose(by_hand.reshape(-1, 7), logits.grad.numpy(), atol=1e-15)
    by_differences = gradient(lambda x: loss.cross_entropy(x, TARGETS, smoothing), LOGITS)
    np.testing.assert_allclose(by_hand, by_differences, atol=1e-9)
    np.testing.assert_allclose(by_hand.sum(-1), 0, atol=1e-16)
    assert (by_hand[TARGETS == -100] == 0).all()


def test_trap_accumulation_is_one_sum_by_one_count() -> None:
    """Six tokens at 2.0 and two at 0.5 cost 1.625, however they are split."""
    sure = np.array([2.0] * 6 + [0.5] * 2)
    logits = np.stack([np.log(np.exp(-sure)), np.log(1 - np.exp(-sure))], -1)
    targets = np.zeros(8, dtype=int)
    np.testing.assert_allclose(loss.token_losses(logits, targets), sure)
    assert abs(loss.cross_entropy(logits, targets) - 1.625) < 1e-14
    parts = [loss.token_losses(logits[i:j], targets[i:j]).sum() for i, j in ((0, 3), (3, 8))]
    assert abs(sum(parts) / loss.count(targets) - 1.625) < 1e-14


def test_nothing_to_score_is_refused() -> None:
    with pytest.raises(InputError, match="at least one token"):
        loss.cross_entropy(LOGITS, np.full((2, 4), -100))


def test_a_hopeless_logit_costs_much_and_not_infinity() -> None:
    assert loss.cross_entropy([[0.0, -5000.0]], [1]) == 5000
