from __future__ import annotations

import numpy as np
import pytest

from cutaway.errors import InputError
from cutaway.reference import sampling as s
from cutaway.reference.sampling import Sampling, distribution

P = np.array([0.5, 0.3, 0.1, 0.1])
LOGITS = np.log(P)


@pytest.mark.parametrize(("p", "kept"), [(0.79, 2), (0.81, 3), (0.0, 1), (1.0, 4), (0.5, 1), (0.51, 2)])
def test_trap_top_p_keeps_the_crossing_token_and_at_least_one(p: float, kept: int) -> None:
    got = distribution(LOGITS, Sampling(top_p=p))
    assert (got > 0).sum() == kept
    np.testing.assert_allclose(got[:kept], P[:kept] / P[:kept].sum())


def test_trap_temperature_0_is_greedy_and_near_0_does_not_overflow() -> None:
    logits = [3.0, 800.0, -900, 800.0]
    np.testing.assert_array_equal(distribution(logits, Sampling(temperature=0)), [0, 1, 0, 0])  # the lower id first
    with np.errstate(over="raise", invalid="raise"):
        np.testing.assert_allclose(distribution(logits, Sampling(temperature=1e-6)), [0, 0.5, 0, 0.5])
    with pytest.raises(InputError, match="negative"):
        distribution(logits, Sampling(temperature=-0.1))
    np.testing.assert_allclose(distribution(LOGITS, Sampling(temperature=0.5)), P**2 / (P**2).sum())


def test_trap_repetition_penalty_divides_or_multiplies_once() -> None:
    np.testing.assert_allclose(s.penalise([2.0, -2, 1], [0, 1, 1, 0], 2.0), [1, -4, 1])
    np.testing.assert_allclose(s.penalise([2.0, -2, 1], [0, 1, 1, 0], presence=0.5), [1.5, -2.5, 1])
    np.testing.assert_allclose(s.penalise([2.0, -2, 1], []), [2, -2, 1])


def test_top_k_keeps_k_and_breaks_ties_by_the_lower_id() -> None:
    np.testing.assert_allclose(distribution(LOGITS, Sampling(top_k=3)), [5 / 9, 3 / 9, 1 / 9, 0])
    np.testing.assert_allclose(distribution(LOGITS, Sampling(top_k=9)), P)
    np.testing.assert_allclose(distribution(LOGITS, Sampling(top_k=0)), P)


def test_min_p_is_relative_to_the_likeliest() -> None:
    np.testing.assert_allclose(distribution(LOGITS, Sampling(min_p=0.5)), [5 / 8, 3 / 8, 0, 0])
    np.testing.assert_allclose(distribution(LOGITS, Sampling(min_p=1.0)), [1, 0, 0, 0])


def test_the_order_is_penalties_temperature_top_k_top_p_min_p() -> None:
    hot = distribution(LOGITS, Sampling(temperature=2.0, top_p=0.5))  # flattened first, 0.5 needs two tokens
    assert (hot > 0).sum() == 2
    after_k = distribution(LOGITS, Sampling(top_k=2, top_p=0.62))  # 0.625 of what top-k left: one token
    assert (after_k > 0).sum() == 1
    pushed = distribution(LOGITS, Sampling(top_k=1, presence_penalty=5.0), seen=[0])
    np.testing.assert_array_equal(pushed, [0, 1, 0, 0])


def test_draw_takes_each_token_by_its_share_and_never_an_impossible_one() -> None:
    p = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    drawn = [s.draw(p, u) for u in np.linspace(0, 1, 4001)[:-1]]
    assert set(drawn) == {1, 3} and abs(drawn.count(1) / 4000 - 0.25) < 1e-3
    assert s.draw(p, 0.0) == 1 and s.draw(p, np.nextafter(1, 0)) == 3
