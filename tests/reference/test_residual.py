from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cutaway.reference import block, residual
from cutaway.reference.norms import layer_norm, rms_norm
from cutaway.reference.residual import Branch, Stage, stage

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))
MATRICES = RNG.normal(size=(6, 8, 8)) / math.sqrt(8)
START = RNG.normal(size=8)


def double(x: np.ndarray) -> np.ndarray:
    return 2 * x


def cube(x: np.ndarray) -> np.ndarray:
    return x**3


PLACEMENTS: dict[str, tuple[Stage, np.ndarray]] = {
    "pre": (Stage([Branch(cube, norm_in=layer_norm)]), X + layer_norm(X) ** 3),
    "post_2017": (Stage([Branch(cube)], norm_sum=layer_norm), layer_norm(X + X**3)),
    "gemma_2": (Stage([Branch(cube, norm_in=rms_norm, norm_out=layer_norm)]), X + layer_norm(rms_norm(X) ** 3)),
    "olmo_2": (Stage([Branch(cube, norm_out=rms_norm)]), X + rms_norm(X**3)),
    "one_norm_for_all": (
        Stage([Branch(cube), Branch(double)], norm=layer_norm),
        X + layer_norm(X) ** 3 + 2 * layer_norm(X),
    ),
    "a_norm_a_branch": (
        Stage([Branch(cube, norm_in=layer_norm), Branch(double, norm_in=rms_norm)]),
        X + layer_norm(X) ** 3 + 2 * rms_norm(X),
    ),
    "bloom": (Stage([Branch(cube)], norm=layer_norm, skip="normed"), layer_norm(X) + layer_norm(X) ** 3),
    "no_residual": (Stage([Branch(cube, norm_in=layer_norm)], skip="none"), layer_norm(X) ** 3),
    "no_residual_normed": (Stage([Branch(cube)], norm_sum=layer_norm, skip="none"), layer_norm(X**3)),
    "half": (Stage([Branch(cube, scale=0.5)]), X + 0.5 * X**3),
    "a_number_a_channel": (Stage([Branch(cube, scale=np.arange(4.0))]), X + np.arange(4.0) * X**3),
}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_placements(name: str) -> None:
    how, expected = PLACEMENTS[name]
    np.testing.assert_allclose(stage(X, how), expected, atol=1e-14)


def test_a_part_that_gives_zero_lets_x_pass_untouched_in_pre_norm_alone() -> None:
    np.testing.assert_array_equal(block.block(X, block.pre_norm([np.zeros_like] * 2, layer_norm)), X)
    np.testing.assert_allclose(block.block(X, block.post_norm([np.zeros_like] * 2, layer_norm)), layer_norm(X))


def test_a_stream_keeps_its_shape_and_ends_in_the_final_norm() -> None:
    out = block.stream(X, [block.pre_norm([cube, double], rms_norm)] * 3, layer_norm)
    assert out.shape == X.shape
    np.testing.assert_allclose(out.mean(-1), 0, atol=1e-14)


@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_a_post_norm_stack_has_length_sqrt_d_at_every_depth(gain: float) -> None:
    states = residual.stack(START, MATRICES, "post", gain)
    np.testing.assert_allclose([np.linalg.norm(x) for x in states[1:]], math.sqrt(8))


def test_a_bare_stack_vanishes_and_a_residual_one_does_not() -> None:
    bare, kept = (residual.stack(START, MATRICES, rule, 0.1)[-1] for rule in ("f", "res"))
    assert np.linalg.norm(bare) < 1e-4 < 0.1 < np.linalg.norm(kept)


@pytest.mark.parametrize("rule", residual.RULES)
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_stack_gradients_agree_with_finite_differences(gradient: Any, rule: str, eps: float) -> None:
    up = RNG.normal(size=8)
    states = residual.stack(START, MATRICES, rule, 0.7, eps)
    by_hand = residual.stack_backward(up, states, MATRICES, rule, 0.7, eps)
    assert len(by_hand) == len(states) == 7
    for layer in (0, 3, 6):
        rest = MATRICES[layer:]
        by_differences = gradient(lambda x, rest=rest: up @ residual.stack(x, rest, rule, 0.7, eps)[-1], states[layer])
        np.testing.assert_allclose(by_hand[layer], by_differences, atol=1e-8)


@pytest.mark.parametrize("rule", residual.RULES)
def test_unit_vectors_for_upstream_give_the_jacobian(rule: str) -> None:
    states = residual.stack(START, MATRICES, rule)
    jacobian = residual.stack_backward(np.eye(8), states, MATRICES, rule)[0]
    move = 1e-6 * RNG.normal(size=8)
    change = residual.stack(START + move, MATRICES, rule)[-1] - residual.stack(START - move, MATRICES, rule)[-1]
    np.testing.assert_allclose(jacobian @ move * 2, change, rtol=1e-5, atol=1e-12)


def test_the_gradient_survives_where_x_is_added() -> None:
    up = np.ones(8) / math.sqrt(8)
    sizes = {}
    for rule in ("f", "res", "pre"):
        states = residual.stack(START, MATRICES, rule, 0.1)
        sizes[rule] = np.linalg.norm(residual.stack_backward(up, states, MATRICES, rule, 0.1)[0])
    assert sizes["f"] < 1e-4 and sizes["res"] > 0.1 and sizes["pre"] > 0.1


def test_norms_on_the_path() -> None:
    assert residual.norms_on_path("post", 12) == (12, 0)
    assert residual.norms_on_path("pre", 3) == (0, 1)
