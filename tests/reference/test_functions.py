from __future__ import annotations

import math

import numpy as np
import pytest

from cutaway.reference import functions as f

WIDE = np.array([-1e308, -1000.0, -5.0, -1.0, 0.0, 1.0, 5.0, 1000.0, 1e308])


def test_softmax_is_a_distribution_and_ignores_a_shift() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)) * 4
    np.testing.assert_allclose(f.softmax(x).sum(-1), 1, atol=1e-15)
    np.testing.assert_allclose(f.softmax(x + 1000), f.softmax(x), atol=1e-13)
    np.testing.assert_allclose(f.softmax(x, axis=0), f.softmax(x.T).T, atol=0)
    np.testing.assert_allclose(f.softmax(x), np.exp(x) / np.exp(x).sum(-1, keepdims=True), atol=1e-15)


def test_log_softmax_keeps_what_softmax_rounds_to_zero() -> None:
    np.testing.assert_allclose(f.log_softmax([0.0, -2000.0]), [0, -2000])
    x = np.random.default_rng(1).normal(size=(2, 6))
    np.testing.assert_allclose(f.log_softmax(x), np.log(f.softmax(x)), atol=1e-14)


@pytest.mark.parametrize("name", f.ACTIVATIONS)
def test_activations_overflow_nowhere(name: str) -> None:
    with np.errstate(over="raise", invalid="raise"):
        far = WIDE if name not in ("relu2", "gelu_tanh") else WIDE[1:-1]
        assert not np.isnan(f.ACTIVATIONS[name](far)).any()


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("relu", [-2, 0, 3], [0, 0, 3]),
        ("relu2", [-2, 0, 3], [0, 0, 9]),
        ("sigmoid", [0, math.log(3)], [0.5, 0.75]),
        ("silu", [0, math.log(3)], [0, 0.75 * math.log(3)]),
        ("tanh", [0.5 * math.log(3)], [0.5]),
        ("gelu", [-1, 0, 1, 2], [-0.15865525393145707, 0, 0.8413447460685429, 1.9544997361036416]),
        ("gelu_tanh", [1, -1], [0.8411919906082768, -0.15880800939172324]),
        ("quick_gelu", [1.0], [1 / (1 + math.exp(-1.702))]),
        ("identity", [-7, 7], [-7, 7]),
    ],
)
def test_activation_values(name: str, x: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(f.ACTIVATIONS[name](x), expected, rtol=1e-13, atol=1e-15)


def test_the_tanh_gelu_stays_within_a_thousandth_of_the_exact_one() -> None:
    x = np.linspace(-6, 6, 401)
    gap = np.abs(f.gelu(x) - f.gelu_tanh(x)).max()
    assert 1e-5 < gap < 1e-3


def test_trap_soft_cap_values() -> None:
    np.testing.assert_allclose(f.soft_cap(60, 50), 41.6827, atol=5e-5)
    np.testing.assert_allclose(f.soft_cap(45, 30), 27.1544, atol=5e-5)
    assert f.soft_cap(1e9, 50) == 50 and f.soft_cap(60, None) == 60


def test_linear_takes_weights_as_out_by_in() -> None:
    np.testing.assert_array_equal(f.linear([1, 2], [[1, 0], [0, 1], [1, 1]], [10, 20, 30]), [11, 22, 33])
