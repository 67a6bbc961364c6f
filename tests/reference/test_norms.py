from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cutaway.reference.norms import column_norm, layer_norm, layer_norm_backward, rms_norm, rms_norm_backward

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 8)) * 3 + 1


def test_layer_norm_has_mean_0_and_length_sqrt_d_whatever_shift_and_scale() -> None:
    y = layer_norm(X)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), math.sqrt(8))
    np.testing.assert_allclose(layer_norm(5 * X - 40), y, atol=1e-12)


def test_rms_norm_has_mean_square_1_and_keeps_signs_whatever_the_scale() -> None:
    y = rms_norm(X)
    np.testing.assert_allclose((y**2).mean(-1), 1)
    assert (np.sign(y) == np.sign(X)).all()
    np.testing.assert_allclose(rms_norm(7 * X), y, atol=1e-14)
    assert np.abs(rms_norm(X + 1) - y).max() > 0.01  # unlike LayerNorm it sees a shift


def test_gain_1_and_shift_0_change_nothing() -> None:
    ones, zeros = np.ones(8), np.zeros(8)
    np.testing.assert_array_equal(layer_norm(X, ones, zeros), layer_norm(X))
    np.testing.assert_array_equal(rms_norm(X, ones), rms_norm(X))
    np.testing.assert_array_equal(rms_norm(X, zeros, one_plus=True), rms_norm(X))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3, 1e-300, 1e150])
def test_a_word_of_equal_numbers_is_normalised_to_exact_zeros(value: float) -> None:
    assert (layer_norm(np.full(3, value)) == 0).all()
    assert (column_norm(np.full((3, 2), value)) == 0).all()


def test_rms_norm_of_zeros_is_zeros_without_eps() -> None:
    assert (rms_norm(np.zeros(4)) == 0).all()


def test_rows_stand_alone_but_not_in_the_column_norm() -> None:
    table = np.array([[1.0, 2, 3, 6], [10, 10, 12, 8], [-1, 0, 1, 0]])
    edited = table.copy()
    edited[2, 0] = 9
    for norm in (layer_norm, rms_norm):
        np.testing.assert_array_equal(norm(edited)[:2], norm(table)[:2])
    assert (column_norm(edited)[:2, 0] != column_norm(table)[:2, 0]).all()
    np.testing.assert_array_equal(column_norm(edited)[:, 1:], column_norm(table)[:, 1:])


@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.1])
@pytest.mark.parametrize("gained", [False, True])
def test_layer_norm_gradients_agree_with_finite_differences(gradient: Any, eps: float, gained: bool) -> None:
    up = RNG.normal(size=X.shape)
    gain = RNG.normal(size=8) if gained else None
    dx, dgain, dshift = layer_norm_backward(up, X, gain, eps)
    np.testing.assert_allclose(dx, gradient(lambda x: (up * layer_norm(x, gain, eps=eps)).sum(), X), atol=1e-8)
    start = np.ones(8) if gain is None else gain
    np.testing.assert_allclose(dgain, gradient(lambda g: (up * layer_norm(X, g, eps=eps)).sum(), start), atol=1e-8)
    by_shift = gradient(lambda b: (up * layer_norm(X, start, b, eps)).sum(), np.zeros(8))
    np.testing.assert_allclose(dshift, by_shift, atol=1e-8)


@pytest.mark.parametrize("one_plus", [False, True])
def test_rms_norm_gradients_agree_with_finite_differences(gradient: Any, one_plus: bool) -> None:
    up, gain = RNG.normal(size=X.shape), RNG.normal(size=8)
    dx, dgain = rms_norm_backward(up, X, gain, 1e-6, one_plus)
    np.testing.assert_allclose(dx, gradient(lambda x: (up * rms_norm(x, gain, 1e-6, one_plus)).sum(), X), atol=1e-8)
    by_gain = gradient(lambda g: (up * rms_norm(X, g, 1e-6, one_plus)).sum(), gain)
    np.testing.assert_allclose(dgain, by_gain, atol=1e-8)


def test_layer_norm_sends_no_gradient_along_what_it_removes() -> None:
    dx = layer_norm_backward(RNG.normal(size=X.shape), X)[0]
    centred = X - X.mean(-1, keepdims=True)
    np.testing.assert_allclose(dx.sum(-1), 0, atol=1e-14)
    np.testing.assert_allclose((dx * centred).sum(-1), 0, atol=1e-13)


def test_trap_one_plus_weight() -> None:
    np.testing.assert_allclose(rms_norm([3.0, 4.0], [0.0, 1.0], one_plus=True), [3 / 12.5**0.5, 8 / 12.5**0.5])
    np.testing.assert_array_equal(rms_norm([3.0, 4.0], [0.0, 0.0]), [0, 0])
