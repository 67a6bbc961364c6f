from __future__ import annotations

import numpy as np
import pytest

from cutaway.reference import feedforward as ff
from cutaway.reference.functions import gelu, relu, sigmoid, softmax
from cutaway.spec.feedforward import gated_d_ff

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))


def network(d_ff: int, gated: bool = True, d: int = 4, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    names = {"up_proj": (d_ff, d), "down_proj": (d, d_ff), **({"gate_proj": (d_ff, d)} if gated else {})}
    return {f"{name}.weight": rng.normal(size=shape) for name, shape in names.items()}


def size(w: dict[str, np.ndarray]) -> int:
    return sum(each.size for each in w.values())


def test_a_row_never_depends_on_the_others() -> None:
    w, changed = network(6), X.copy()
    changed[:, 1] += 3
    for f in (lambda x: ff.dense(x, w), lambda x: ff.gated(x, w)):
        np.testing.assert_array_equal(f(changed)[:, [0, 2]], f(X)[:, [0, 2]])
        np.testing.assert_allclose(f(X[:1, :1]), f(X)[:1, :1], atol=1e-14)


def test_dense_and_gated_by_definition() -> None:
    w = network(6)
    up, gate, down = (w[f"{name}_proj.weight"].T for name in ("up", "gate", "down"))
    np.testing.assert_allclose(ff.dense(X, w, "gelu"), gelu(X @ up) @ down)
    np.testing.assert_allclose(ff.gated(X, w, ff.Gate("relu")), (relu(X @ gate) * (X @ up)) @ down)
    np.testing.assert_allclose(ff.gated(X, w, ff.Gate("identity")), ((X @ gate) * (X @ up)) @ down)
    np.testing.assert_allclose(ff.gated(X, w, ff.Gate("removed")), (X @ up) @ down)
    one_way = ff.dense(X, {**w, "up_proj.bias": np.ones(6), "down_proj.bias": np.ones(4)})
    np.testing.assert_allclose(one_way, relu(X @ up + 1) @ down + 1)


def test_two_thirds_of_d_ff_keep_the_weight_count() -> None:
    for d_ff in (3, 48, 3072):
        assert size(network(d_ff, gated=False)) == size(network(gated_d_ff(d_ff)))
    d = 8  # attention has 4 d^2, a network of 4 d has 8 d^2: two thirds of a layer
    assert size(network(4 * d, gated=False, d=d)) * 3 == (8 * d * d + 4 * d * d) * 2


def test_gpt_oss_gate_by_hand() -> None:
    how = ff.Gate(clamp=7.0, alpha=1.702, up_offset=1.0)
    w = {"gate_proj.weight": [[1.0]], "up_proj.weight": [[2.0]], "down_proj.weight": [[1.0]]}
    w = {name: np.array(value) for name, value in w.items()}
    x = np.array([[5.0], [9.0], [-9.0]])
    gates, ups = np.array([5.0, 7, -9]), np.array([7.0, 7, -7])  # the gate has no lower bound
    np.testing.assert_allclose(ff.gated(x, w, how)[:, 0], gates * sigmoid(1.702 * gates) * (ups + 1))


def test_trap_router_normalised_or_not() -> None:
    logits = [2.0, 1, 0, -1]
    np.testing.assert_allclose(ff.route(logits, ff.Router(2, normalise=False)), [0.6439, 0.2369, 0, 0], atol=5e-5)
    np.testing.assert_allclose(ff.route(logits, ff.Router(2)), [0.7311, 0.2689, 0, 0], atol=5e-5)
    after = ff.route(logits, ff.Router(2, "softmax_after", factor=3.0))
    np.testing.assert_allclose(after, 3 * ff.route(logits, ff.Router(2)), atol=1e-15)


def test_ties_go_to_the_lower_index() -> None:
    np.testing.assert_array_equal(ff.largest([1.0, 2, 2, 2, 1], 2), [False, True, True, False, False])
    np.testing.assert_allclose(ff.route(np.zeros(4), ff.Router(2)), [0.5, 0.5, 0, 0])


def test_trap_choice_bias_picks_and_does_not_weigh() -> None:
    logits, router = np.array([2.0, 1, 0, -1]), ff.Router(2, "sigmoid", factor=2.5)
    got = ff.route(logits, router, [0, 0, 0, 10.0])
    chosen = sigmoid(logits)[[0, 3]]
    np.testing.assert_allclose(got, 2.5 * np.array([chosen[0], 0, 0, chosen[1]]) / chosen.sum())


def test_groups_shut_out_the_best_expert_of_a_poor_group() -> None:
    scores = np.array([0.9, 0.0, 0.6, 0.5, 0.1, 0.2])  # groups of two: best 0.9, 0.6, 0.2; sums 0.9, 1.1, 0.3
    by_best = ff.choose(scores, ff.Router(2, n_groups=3, n_active_groups=1))
    by_two = ff.choose(scores, ff.Router(2, n_groups=3, n_active_groups=1, group_score="top2"))
    np.testing.assert_array_equal(np.flatnonzero(by_best), [0, 1])
    np.testing.assert_array_equal(np.flatnonzero(by_two), [2, 3])
    negative = ff.choose(scores - 1, ff.Router(2, n_groups=3, n_active_groups=1))
    np.testing.assert_array_equal(negative, by_best)  # a shut group is -inf, not 0, which would beat these


def test_a_mixture_adds_only_the_chosen() -> None:
    experts = [lambda x, e=e: x * (e + 1) for e in range(3)]
    weights = ff.route(RNG.normal(size=(2, 3, 3)), ff.Router(2))
    np.testing.assert_allclose(ff.mixture(X, weights, experts), X * (weights @ [1, 2, 3])[..., None])
    assert ((weights > 0).sum(-1) == 2).all()


def test_a_shared_expert_may_be_gated() -> None:
    np.testing.assert_array_equal(ff.shared_expert(X, lambda x: 2 * x), 2 * X)
    np.testing.assert_allclose(ff.shared_expert(X, lambda x: 2 * x, np.zeros((1, 4))), X)


def test_load_balance_is_the_number_chosen_when_even_and_more_when_not() -> None:
    even = np.eye(4, dtype=bool) | np.roll(np.eye(4, dtype=bool), 1, 1)
    assert abs(ff.load_balance(np.full((4, 4), 0.25), even) - 2) < 1e-15
    one_sided = softmax(np.tile([9.0, 0, 0, 0], (4, 1)))
    assert ff.load_balance(one_sided, ff.choose(one_sided, ff.Router(1))) > 3.9


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "softmax_after"])
def test_extreme_logits_give_no_nan(score: str) -> None:
    got = ff.route([-1e4, -2e4, -3e4], ff.Router(2, score))
    assert np.isfinite(got).all() and got.sum() in (0.0, pytest.approx(1.0))
    assert ff.route(np.zeros((0, 4)), ff.Router(2, score, n_groups=2)).shape == (0, 4)
