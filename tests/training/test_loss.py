"""The loss and its gradient are the reference's."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.reference import loss as reference
from cutaway.training import loss
from cutaway.training.loss import IGNORED, cross_entropy, token_losses


def case(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [2, 5, 7], some huge, and targets of which some are ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64) * 10 ** (seed % 4)
    targets = torch.randint(0, 7, (2, 5), generator=generator)
    targets[torch.rand(2, 5, generator=generator) < 0.3] = IGNORED
    targets[0, 0] = 3
    return logits.requires_grad_(), targets


@given(seed=st.integers(0, 99), smoothing=st.sampled_from([0.0, 0.1, 0.5]))
def test_losses_and_gradients_are_the_definition(seed, smoothing):
    logits, targets = case(seed)
    arrays = logits.detach().numpy(), targets.numpy(), smoothing
    wanted = reference.token_losses(*arrays)
    assert np.allclose(token_losses(logits, targets, smoothing).detach(), wanted, rtol=1e-13, atol=1e-13)
    mean = cross_entropy(logits, targets, smoothing)
    assert float(mean.detach()) == pytest.approx(reference.cross_entropy(*arrays), rel=1e-13)
    (gradient,) = torch.autograd.grad(mean, logits)
    assert np.abs(gradient.numpy() - reference.cross_entropy_gradient(*arrays)).max() < 1e-14
    assert reference.IGNORED == IGNORED


def test_the_mean_is_over_scored_tokens_alone():
    logits, targets = case(0)
    more = torch.cat((logits, torch.full((1, 5, 7), 50.0)))
    padded = torch.cat((targets, torch.full((1, 5), IGNORED)))
    assert torch.equal(cross_entropy(logits, targets), cross_entropy(more, padded))


def test_half_precision_is_summed_in_float32():
    logits, targets = torch.zeros(1, 1, 50000, dtype=torch.bfloat16), torch.zeros(1, 1, dtype=torch.long)
    got = cross_entropy(logits, targets)
    assert got.dtype == torch.float32 and float(got) == pytest.approx(np.log(50000), rel=1e-6)


def test_nothing_to_score_is_refused_not_nan():
    with pytest.raises(InputError, match="every target is ignored.*give at least one"):
        cross_entropy(torch.zeros(1, 2, 3), torch.full((1, 2), IGNORED))


def test_the_example_runs():
    assert doctest.testmod(loss).failed == 0


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0, 7], "targets: 7 is not in the vocabulary of 7 tokens; -100 leaves a token out"),
        ([-1, 9], "targets: -1 is not in the vocabulary"),
        ([[0], [1]], r"targets: shape \(2, 1\) of torch.int64; give torch.int64 of \(2,\)"),
        ([0.5, torch.nan], r"targets: shape \(2,\) of torch.float32"),
    ],
)
def test_targets_that_are_no_ids_are_refused_by_name(targets, message):
    for loss_of in (token_losses, cross_entropy):
        with pytest.raises(InputError, match=f"^{message}"):
            loss_of(torch.zeros(2, 7), torch.tensor(targets))
