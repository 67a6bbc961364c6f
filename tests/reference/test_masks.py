from __future__ import annotations

import numpy as np

from cutaway.reference import masks

PLACE = np.arange(8)
QUERY, KEY = PLACE[:, None], PLACE[None, :]


def test_causal_is_the_lower_triangle_and_full_hides_nothing() -> None:
    np.testing.assert_array_equal(masks.causal(QUERY, KEY), np.tril(np.ones((8, 8), bool)))
    assert masks.full(QUERY, KEY).all() and masks.full(QUERY, KEY).shape == (8, 8)


def test_trap_a_window_counts_the_token_itself() -> None:
    seen = masks.sliding(QUERY, KEY, 5)
    np.testing.assert_array_equal(np.flatnonzero(seen[-1]), [3, 4, 5, 6, 7])
    np.testing.assert_array_equal(seen.sum(-1), [1, 2, 3, 4, 5, 5, 5, 5])
    np.testing.assert_array_equal(masks.sliding(QUERY, KEY, 1), np.eye(8, dtype=bool))


def test_two_sided_by_half_width() -> None:
    np.testing.assert_array_equal(np.flatnonzero(masks.two_sided(QUERY, KEY, 2)[4]), [2, 3, 4, 5, 6])


def test_chunks_start_anew() -> None:
    seen = masks.chunked(QUERY, KEY, 3)
    np.testing.assert_array_equal(np.flatnonzero(seen[5]), [3, 4, 5])
    np.testing.assert_array_equal(np.flatnonzero(seen[6]), [6])


def test_a_prefix_is_seen_by_all_and_each_row_has_its_own() -> None:
    seen = masks.prefix(QUERY[None], KEY[None], np.array([[[3]], [[0]]]))
    np.testing.assert_array_equal(np.flatnonzero(seen[0, 0]), [0, 1, 2])
    np.testing.assert_array_equal(np.flatnonzero(seen[0, 5]), [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(seen[1], masks.causal(QUERY, KEY))


def test_padding_and_other_documents_are_hidden() -> None:
    owners = masks.owners_from_mask([[0, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(owners, [[-1, 0, 0], [1, 1, -1]])
    seen = masks.visible(True, owners, owners)
    np.testing.assert_array_equal(seen[0], [[0, 0, 0], [0, 1, 1], [0, 1, 1]])
    packed = masks.visible(masks.causal(QUERY[:4], KEY[:, :4]), [[5, 5, 9, 9]], [[5, 5, 9, 9]])
    np.testing.assert_array_equal(packed[0], [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]])
