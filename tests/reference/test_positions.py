from __future__ import annotations

import math

import numpy as np
import pytest

from cutaway.errors import InputError
from cutaway.reference import positions as p

RNG = np.random.default_rng(0)


# Counting


def test_trap_positions_count_from_the_first_real_token() -> None:
    mask = [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    np.testing.assert_array_equal(p.count_from_mask(mask), [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(p.count_columns((2, 3)), [[0, 1, 2], [0, 1, 2]])
    assert p.count_from_mask(np.ones((0, 4))).shape == (0, 4)


def test_trap_positions_counted_from_pad_ids() -> None:
    """RoBERTa: rows begin at pad + 1, and a pad takes the row pad wherever it stands."""
    np.testing.assert_array_equal(p.count_from_ids([[1, 1, 7, 8], [7, 1, 8, 1]], 1, 2), [[1, 1, 2, 3], [2, 1, 3, 1]])


def test_documents_start_anew() -> None:
    owners = [[4, 4, 7, 7, 7, -1], [2, 2, 2, 2, 3, 3]]
    np.testing.assert_array_equal(p.count_in_documents(owners), [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 0, 1]])


# Tables


@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 64])
@pytest.mark.parametrize("closed", [False, True])
def test_sinusoids_lie_within_1_and_rows_differ(d: int, closed: bool) -> None:
    table = p.sinusoidal(np.arange(50), d, closed=closed)
    assert table.shape == (50, d) and np.abs(table).max() <= 1
    if not (closed and d == 1):  # a single column has no pair, so it stays 0
        assert len(np.unique(table.round(12), axis=0)) == 50


@pytest.mark.parametrize("d", [6, 7])
def test_both_layouts_hold_the_same_columns(d: int) -> None:
    one, other = (p.sinusoidal(np.arange(9), d, layout) for layout in ("interleaved", "halves"))
    np.testing.assert_array_equal(np.concatenate([one[:, ::2], one[:, 1::2]], -1), other)


def test_an_odd_width_leaves_out_the_last_cosine() -> None:
    table = p.sinusoidal([1.0], 3)[0]
    np.testing.assert_allclose(table, [math.sin(1), math.cos(1), math.sin(10000 ** (-2 / 3))])


def test_a_step_of_k_is_a_fixed_rotation() -> None:
    d, k = 8, 5
    rows, moved = p.sinusoidal(np.arange(20), d), p.sinusoidal(np.arange(20) + k, d)
    angles = k * p.sinusoidal_frequencies(d)
    cos_sin = rows[:, [1, 0, 3, 2, 5, 4, 7, 6]]  # rotate (cos, sin), which is the point on the circle
    np.testing.assert_allclose(p.rotate(cos_sin, angles)[:, [1, 0, 3, 2, 5, 4, 7, 6]], moved, atol=1e-13)


def test_closed_frequencies_run_from_1_to_exactly_1_over_base() -> None:
    np.testing.assert_allclose(p.sinusoidal_frequencies(8, closed=True), 10000 ** (-np.arange(4) / 3))
    assert (p.sinusoidal(np.arange(5), 7, closed=True)[:, -1] == 0).all()


def test_trap_a_learned_table_refuses_a_row_it_has_not() -> None:
    table = RNG.normal(size=(5, 3))
    np.testing.assert_array_equal(p.learned(table, np.array([[4, 0]])), table[[[4, 0]]])
    for row in (5, -1):
        with pytest.raises(InputError, match="position table"):
            p.learned(table, np.array([[row]]))
    assert p.learned(table, np.zeros((0, 2), dtype=int)).shape == (0, 2, 3)


# Rotation


def test_trap_interleaved_or_halves() -> None:
    q, angles = [1.0, 0, 0, 0], p.rope_frequencies(4)
    np.testing.assert_allclose(p.rotate(q, angles, "halves"), [0.5403, 0, 0.8415, 0], atol=5e-5)
    np.testing.assert_allclose(p.rotate(q, angles), [0.5403, 0.8415, 0, 0], atol=5e-5)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotation_keeps_length_and_the_score_of_a_distance(layout: str) -> None:
    q, k, speed = RNG.normal(size=8), RNG.normal(size=8), p.rope_frequencies(8)

    def score(m: int, n: int) -> float:
        return float(p.rotate(q, m * speed, layout) @ p.rotate(k, n * speed, layout))

    assert abs(np.linalg.norm(p.rotate(q, 37 * speed, layout)) - np.linalg.norm(q)) < 1e-14
    for shift in (1, 10, 1000, 5000):
        assert abs(score(7 + shift, 4 + shift) - score(7, 4)) < 1e-9
    assert abs(score(8, 4) - score(7, 4)) > 1e-3
    np.testing.assert_allclose(p.rotate(q, 0 * speed, layout), q)


def test_trap_partial_rotation_passes_the_rest() -> None:
    x = RNG.normal(size=(2, 3, 16))
    turned = p.rotate(x, np.ones((3, 1)) * p.rope_frequencies(6), "halves")
    np.testing.assert_array_equal(turned[..., 6:], x[..., 6:])
    np.testing.assert_allclose(turned[..., :6], p.rotate(x[..., :6], np.ones((3, 1)) * p.rope_frequencies(6), "halves"))
    with pytest.raises(InputError, match="even"):
        p.rope_frequencies(5)


def test_linear_scaling_divides_positions() -> None:
    np.testing.assert_allclose(6 * p.linear_frequencies(8, 1e4, 3.0), 2 * p.rope_frequencies(8))


def test_dynamic_scaling_begins_at_the_original_length_and_takes_each_row() -> None:
    got = p.dynamic_frequencies(8, 1e4, 2.0, 64, [10, 64, 128])
    np.testing.assert_allclose(got[:2], [p.rope_frequencies(8)] * 2)
    np.testing.assert_allclose(got[2], p.rope_frequencies(8, 1e4 * 3 ** (8 / 6)))
    # NTK's promise: at length L the slowest pair turns as slowly as if positions were divided by the stretch
    np.testing.assert_allclose(got[2, -1], p.rope_frequencies(8)[-1] / 3)
    assert np.isfinite(p.dynamic_frequencies(2, 1e4, 2.0, 4, [9])).all()


def test_trap_yarn_attention_factor() -> None:
    assert abs(p.yarn_attention_factor(4) - 1.138629) < 5e-7
    assert p.yarn_attention_factor(40, 1.0, 1.0) == 1
    assert abs((0.1 * math.log(40) + 1) ** 2 - 1.873854) < 5e-7  # what DeepSeek's scale is multiplied by
    assert p.yarn_attention_factor(0.5) == 1
    assert abs(p.yarn_attention_factor(4, 2.0, 1.0) - (0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1)) < 1e-15


def test_yarn_keeps_fast_pairs_and_divides_slow_ones() -> None:
    kept, got = p.rope_frequencies(64), p.yarn_frequencies(64, 1e4, 4.0, 2048, (32.0, 1.0, True))
    turns = 2048 * kept / (2 * math.pi)
    np.testing.assert_allclose(got[turns > 45], kept[turns > 45])
    np.testing.assert_allclose(got[turns < 0.7], kept[turns < 0.7] / 4)
    assert (np.diff(got / kept) <= 1e-15).all() and ((got < kept) & (got > kept / 4)).any()


def test_yarn_rounds_the_ramp_outwards_to_whole_pairs() -> None:
    """32 turns fall on pair 8.06 and 1 turn on pair 20.11: the ramp runs from 8 to 21, or between the two."""
    whole, exact = (
        p.yarn_frequencies(64, 1e4, 4.0, 2048, (32.0, 1.0, truncate)) / p.rope_frequencies(64)
        for truncate in (True, False)
    )
    np.testing.assert_allclose(whole[[8, 9, 20, 21]], [1, 1 - 0.75 / 13, 1 - 0.75 * 12 / 13, 0.25], rtol=1e-13)
    ends = [64 * math.log(2048 / (turns * 2 * math.pi)) / (2 * math.log(1e4)) for turns in (32, 1)]
    np.testing.assert_allclose(exact[[8, 21]], [1, 0.25])
    np.testing.assert_allclose(exact[9], 1 - 0.75 * (9 - ends[0]) / (ends[1] - ends[0]), rtol=1e-13)


def test_llama3_keeps_short_waves_divides_long_ones_and_blends() -> None:
    kept, got = p.rope_frequencies(64, 5e5), p.llama3_frequencies(64, 5e5, 8.0, 8192, (1.0, 4.0))
    wave = 2 * math.pi / kept
    np.testing.assert_allclose(got[wave < 8192 / 4], kept[wave < 8192 / 4])
    np.testing.assert_allclose(got[wave > 8192], kept[wave > 8192] / 8)
    between = (wave > 8192 / 4) & (wave < 8192)
    assert between.any()
    smooth = (8192 / wave[between] - 1) / 3
    np.testing.assert_allclose(got[between], (1 - smooth) * kept[between] / 8 + smooth * kept[between])


def test_longrope_takes_the_long_factors_beyond_the_original_length() -> None:
    got = p.longrope_frequencies(4, 1e4, ([1, 2], [3, 4]), 16, [16, 17])
    np.testing.assert_allclose(got, p.rope_frequencies(4) / [[1, 2], [3, 4]])
    assert abs(p.longrope_attention_factor(32, 4096) - math.sqrt(1 + math.log(32) / math.log(4096))) < 1e-15
    assert p.longrope_attention_factor(1.0, 4096) == 1


# Biases


def test_trap_bfloat16_rounding() -> None:
    np.testing.assert_array_equal(p.to_bfloat16([256, 257, 258, 259, 1.0, -257]), [256, 256, 258, 260, 1, -256])
    cosines = p.to_bfloat16(np.cos([256, 257]))
    np.testing.assert_allclose(cosines, [-0.0398, 0.8193], atol=2e-3)


def test_trap_alibi_slopes() -> None:
    np.testing.assert_array_equal(p.alibi_slopes(8), 2.0 ** -np.arange(1, 9))
    np.testing.assert_array_equal(p.alibi_slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125])
    np.testing.assert_array_equal(p.alibi_slopes(1), [2.0**-8])
    np.testing.assert_array_equal(p.alibi_slopes(2, max_bias=4), [0.25, 0.0625])


def test_alibi_is_a_distance_and_the_rounded_form_equals_it_but_for_the_row() -> None:
    place = np.arange(6)[None]
    bias = p.alibi(p.alibi_slopes(2), place, place, 0.5)
    assert bias.shape == (1, 2, 6, 6)
    np.testing.assert_array_equal(bias[0, 0, 3], -(2.0**-4) * np.abs(place[0] - 3) * 0.5)
    rounded = p.alibi_bfloat16(p.alibi_slopes(2), place, 0.5)  # slopes and products are exact in bfloat16 here
    lower = np.tril(np.ones((6, 6), bool))
    shifted = rounded - rounded[0, :, 0, :][None, :, :, None]
    np.testing.assert_allclose((bias - shifted)[..., lower], 0, atol=1e-15)


def test_trap_alibi_products_are_rounded() -> None:
    slopes = p.alibi_slopes(32)
    rounded = p.alibi_bfloat16(slopes, np.array([[1001]]))[0, :, 0, 0]
    gap = np.abs(rounded / (slopes * 1001) - 1)
    assert 1e-3 < gap.max() < 1.5e-2
    np.testing.assert_array_equal(rounded, p.to_bfloat16(rounded))


def test_trap_t5_buckets() -> None:
    both = p.t5_buckets(np.array([-9, -20, -128, 1, 8, 128, 0, -500, 500]), 32, 128, bidirectional=True)
    np.testing.assert_array_equal(both, [8, 10, 15, 17, 24, 31, 0, 15, 31])
    past = p.t5_buckets(np.array([-9, -16, -20, -128, 1, 0, -900]))
    np.testing.assert_array_equal(past, [9, 16, 17, 31, 0, 0, 31])


def test_t5_borders_belong_to_the_upper_bucket() -> None:
    """8 single distances, then powers of two every second bucket: 16, 32 and 64 lie exactly on borders."""
    np.testing.assert_array_equal(
        p.t5_buckets(-np.array([15, 16, 31, 32, 63, 64]), 32, 128, True), [9, 10, 11, 12, 13, 14]
    )
    got = p.t5_buckets(-np.arange(200), 32, 128)
    assert (np.diff(got) >= 0).all() and (np.diff(got) <= 1).all() and got[-1] == 31


def test_t5_refuses_buckets_without_room() -> None:
    for n, far, both in ((2, 1, False), (2, 128, True), (32, 16, False)):
        with pytest.raises(InputError, match="T5 buckets"):
            p.t5_buckets(np.arange(3), n, far, both)


def test_t5_bias_reads_one_table_a_head() -> None:
    table = RNG.normal(size=(4, 2))
    bias = p.t5_bias(table, np.array([[[0, 3], [1, 2]]]))
    assert bias.shape == (1, 2, 2, 2)
    np.testing.assert_array_equal(bias[0, :, 0, 1], table[3])
