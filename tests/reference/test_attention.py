from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from cutaway.errors import InputError
from cutaway.reference import attention as a
from cutaway.reference import masks, positions
from cutaway.reference.norms import rms_norm

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 8))
PLACE = np.arange(5)
CAUSAL = masks.causal(PLACE[:, None], PLACE)


def weights(q: int, k: int | None = None, v: int | None = None, d: int = 8, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    k, v = k or q, v or k or q
    shapes = {"q_proj": (q, d), "k_proj": (k, d), "v_proj": (v, d), "o_proj": (d, v * q // k)}
    return {f"{name}.weight": rng.normal(size=shape) for name, shape in shapes.items()}


def test_a_permutation_of_the_words_permutes_the_outputs_and_nothing_else() -> None:
    w, order = weights(8), RNG.permutation(5)
    out = a.multi_head(X, w, a.Heads(4))
    np.testing.assert_allclose(a.multi_head(X[:, order], w, a.Heads(4)), out[:, order], atol=1e-13)
    causal = a.multi_head(X, w, a.Heads(4), CAUSAL)
    assert np.abs(a.multi_head(X[:, ::-1], w, a.Heads(4), CAUSAL) - causal[:, ::-1]).max() > 0.01


def test_a_causal_mask_hides_every_later_token_exactly() -> None:
    w, changed = weights(8), X.copy()
    changed[:, 3] += 5
    before, after = (a.multi_head(x, w, a.Heads(2), CAUSAL) for x in (X, changed))
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert (np.abs(after[:, 3:] - before[:, 3:]).max((0, 2)) > 0.01).all()
    pattern = a.attend(X, X, X, CAUSAL)[1]
    assert (np.triu(pattern, 1) == 0).all()
    np.testing.assert_allclose(pattern.sum(-1), 1)


def test_trap_a_row_that_sees_nothing_gives_zeros() -> None:
    seen = np.array([[False, False, False], [True, False, True]])
    got = a.pattern([[1.0, 2, 3], [1, 2, 1]], seen)
    np.testing.assert_allclose(got, [[0, 0, 0], [0.5, 0, 0.5]])
    assert a.pattern(np.zeros((2, 0))).shape == (2, 0)
    with_sink = a.pattern(np.zeros((1, 2, 3)), np.zeros((2, 3), bool), [0.0])
    np.testing.assert_array_equal(with_sink, np.zeros((1, 2, 3)))


def test_trap_a_mask_is_below_every_score() -> None:
    got = a.pattern([-2e5, -2e5 + 1, 0], [True, True, False])
    np.testing.assert_allclose(got, [0.2689, 0.7311, 0], atol=5e-5)


def test_trap_sinks_take_weight_and_give_nothing() -> None:
    np.testing.assert_allclose(a.pattern(np.zeros((1, 1, 2)), True, [0.0]), [[[1 / 3, 1 / 3]]])
    np.testing.assert_allclose(a.pattern(np.zeros((1, 1, 2)), True, [-np.inf]), [[[0.5, 0.5]]])
    far = a.pattern(np.full((2, 1, 2), -1e5), True, [1e5, -2e5])
    np.testing.assert_allclose(far, [[[0, 0]], [[0.5, 0.5]]])


def test_trap_one_query_with_five_keys_sees_them_all() -> None:
    v = np.arange(5.0)[:, None]
    out, _ = a.attend(np.zeros((1, 4)), np.zeros((5, 4)), v, masks.causal([[4]], np.arange(5)[None]))
    np.testing.assert_allclose(out, [[2.0]])


@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_trap_grouped_heads_read_key_head_n_over_group(n_kv_heads: int) -> None:
    w = weights(16, 4 * n_kv_heads)
    whole = dict(w)
    for name in ("k_proj.weight", "v_proj.weight"):
        heads = w[name].reshape(n_kv_heads, 4, 8)
        whole[name] = np.stack([heads[n // (4 // n_kv_heads)] for n in range(4)]).reshape(16, 8)
    grouped = a.multi_head(X, w, a.Heads(4, n_kv_heads), CAUSAL)
    np.testing.assert_allclose(grouped, a.multi_head(X, whole, a.Heads(4), CAUSAL), atol=1e-13)
    np.testing.assert_array_equal(a.repeat_heads(np.arange(2.0).reshape(2, 1, 1), 4)[:, 0, 0], [0, 0, 1, 1])


def test_heads_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="3 heads"):
        a.split_heads(X, 3)
    with pytest.raises(InputError, match="3 key heads"):
        a.repeat_heads(np.zeros((3, 1, 1)), 4)


def test_an_empty_batch_stays_empty() -> None:
    assert a.multi_head(X[:0], weights(8), a.Heads(2), CAUSAL).shape == (0, 5, 8)


def test_head_dim_and_value_dim_are_free_of_d_model() -> None:
    w = weights(q=2 * 6, k=2 * 6, v=2 * 3)
    assert a.multi_head(X, w, a.Heads(2)).shape == X.shape
    q, k = a.queries(X, w, a.Heads(2)), a.keys_and_values(X, w, a.Heads(2))[0]
    by_hand = a.attend(q, k, a.keys_and_values(X, w, a.Heads(2))[1], scale=6**-0.5)[0]
    np.testing.assert_allclose(a.join_heads(by_hand) @ w["o_proj.weight"].T, a.multi_head(X, w, a.Heads(2)))


def test_one_head_by_hand() -> None:
    """Two words, every number written out."""
    x = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    w = {"q_proj.weight": np.eye(2) * 2, "k_proj.weight": np.eye(2), "v_proj.weight": np.array([[1.0, 3.0]])}
    w = {**w, "v_proj.bias": np.array([10.0]), "o_proj.weight": np.array([[1.0], [-1.0]])}
    heads = a.Heads(scale=0.5)  # scores [[1, 0], [0, 1]], values 11 and 13
    big = math.e / (math.e + 1)
    z = [11 * big + 13 * (1 - big), 11 * (1 - big) + 13 * big]
    np.testing.assert_allclose(a.multi_head(x, w, heads)[0], [[z[0], -z[0]], [z[1], -z[1]]])


def test_order_is_project_norm_clip_rotate() -> None:
    w, angles = weights(8), np.ones((5, 1)) * positions.rope_frequencies(4)
    turn = partial(positions.rotate, angles=angles)
    heads = a.Heads(2, q_norm=rms_norm, k_norm=rms_norm, clip=0.9, turn=turn)
    q = a.split_heads(X @ w["q_proj.weight"].T, 2)
    np.testing.assert_allclose(a.queries(X, w, heads), turn(np.clip(rms_norm(q), -0.9, 0.9)), atol=1e-14)
    k, v = a.keys_and_values(X, w, heads)
    np.testing.assert_allclose(v, np.clip(a.split_heads(X @ w["v_proj.weight"].T, 2), -0.9, 0.9))
    assert np.abs(k).max() <= 0.9 * math.sqrt(2) + 1e-12


def test_qk_norm_over_the_width_differs_from_over_the_head() -> None:
    w = weights(8)
    head, width = (a.queries(X, w, a.Heads(2, q_norm=rms_norm, norm_over_width=over)) for over in (False, True))
    np.testing.assert_allclose((head**2).mean(-1), 1)
    np.testing.assert_allclose((a.join_heads(width) ** 2).mean(-1), 1)
    assert np.abs(head - width).max() > 0.01


def test_the_cap_comes_before_the_bias_and_the_mask() -> None:
    q, k, v, bias = (RNG.normal(size=(1, 2, 2, width)) * 3 for width in (4, 4, 3, 2))
    lower = np.tril(np.ones((2, 2), bool))
    got = a.weighted(q, k, v, a.Heads(2, soft_cap=3.0, bias=bias), lower)
    scores = 3 * np.tanh(q @ np.swapaxes(k, -1, -2) / 2 / 3) + bias
    np.testing.assert_allclose(got, a.pattern(scores, lower) @ v, rtol=1e-13)


@pytest.mark.parametrize(("gate", "width"), [("per_head", 2), ("per_element", 8)])
def test_an_output_gate_scales_heads_before_they_are_joined(gate: str, width: int) -> None:
    w = weights(8)
    plain, wide_open = a.multi_head(X, w, a.Heads(2)), {**w, "gate_proj.weight": np.zeros((width, 8))}
    np.testing.assert_allclose(a.multi_head(X, wide_open, a.Heads(2, gate=gate)), plain / 2)
    shut = {
        **w,
        "gate_proj.weight": np.zeros((width, 8)),
        "gate_proj.bias": np.r_[np.full(width // 2, -800.0), np.zeros(width // 2)],
    }
    second = {**w, "o_proj.weight": w["o_proj.weight"] * np.r_[np.zeros(4), np.full(4, 0.5)]}
    np.testing.assert_allclose(a.multi_head(X, shut, a.Heads(2, gate=gate)), a.multi_head(X, second, a.Heads(2)))


def test_cross_attention_reads_the_memory_alone() -> None:
    w, memory = weights(8), RNG.normal(size=(2, 3, 8))
    out = a.multi_head(X, w, a.Heads(2), memory=memory)
    assert out.shape == X.shape
    np.testing.assert_allclose(out[:, [2]], a.multi_head(X[:, [2]], w, a.Heads(2), memory=memory))
    hidden = np.array([True, True, False])
    np.testing.assert_allclose(
        a.multi_head(X, w, a.Heads(2), hidden, memory), a.multi_head(X, w, a.Heads(2), memory=memory[:, :2])
    )


def latent_weights(q_rank: int, rope: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    q = 3 * (4 + rope)
    shapes = {"kv_down": (5 + rope, 8), "kv_up": (3 * (4 + 2), 5), "o_proj": (8, 6)}
    shapes |= {"q_down": (q_rank, 8), "q_up": (q, q_rank)} if q_rank else {"q_proj": (q, 8)}
    return {f"{name}.weight": rng.normal(size=shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("q_rank", [0, 6])
def test_latent_attention_is_multi_head_with_keys_and_values_made_of_one_latent(q_rank: int) -> None:
    w, shape = latent_weights(q_rank), a.LatentShape(n_heads=3, nope_dim=4, rope_dim=2, value_dim=2)
    turn = partial(positions.rotate, angles=PLACE[:, None] * positions.rope_frequencies(2))
    got = a.latent(X, w, shape, a.Heads(turn=turn, k_norm=rms_norm), CAUSAL)
    down = X @ w["kv_down.weight"].T
    up = (rms_norm(down[..., :5]) @ w["kv_up.weight"].T).reshape(2, 5, 3, 6)
    q_flat = X @ (w["q_up.weight"] @ w["q_down.weight"] if q_rank else w["q_proj.weight"]).T
    q = q_flat.reshape(2, 5, 3, 6)
    heads = []
    for n in range(3):
        query = np.concatenate([q[:, :, n, :4], turn(q[:, :, n, 4:])], -1)
        key = np.concatenate([up[:, :, n, :4], turn(down[..., 5:])], -1)
        heads.append(a.attend(query, key, up[:, :, n, 4:], CAUSAL, 6**-0.5)[0])
    np.testing.assert_allclose(got, np.concatenate(heads, -1) @ w["o_proj.weight"].T, atol=1e-13)


def test_rotated_keys_concatenate_to_the_uncached_run() -> None:
    """k is rotated before it is kept, so keys of two steps side by side are those of one."""
    w, speed = weights(8), positions.rope_frequencies(4)

    def heads(start: int, stop: int) -> a.Heads:
        return a.Heads(2, turn=partial(positions.rotate, angles=np.arange(start, stop)[:, None] * speed))

    whole = a.multi_head(X, w, heads(0, 5), CAUSAL)
    kept = [a.keys_and_values(X[:, i:j], w, heads(i, j)) for i, j in ((0, 3), (3, 5))]
    k, v = (np.concatenate(each, -2) for each in zip(*kept, strict=True))
    late = a.attend_over(X[:, 3:], (k, v), w, heads(3, 5), CAUSAL[3:])
    np.testing.assert_allclose(late, whole[:, 3:], atol=1e-14)
