"""A mask told from the shape alone is the one that the rule makes of positions and owners."""

from __future__ import annotations

import pytest
import torch

from cutaway import spec
from cutaway.parts.masks import shape_rule, visible
from cutaway.parts.slots import Slots

MASKS = [
    spec.FullMask(), spec.CausalMask(), spec.PrefixMask(), spec.SlidingMask(window=3), spec.SlidingMask(window=1),
    spec.TwoSidedMask(half_width=2), spec.TwoSidedMask(half_width=0), spec.ChunkedMask(size=3),
]  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
def test_the_shape_tells_what_the_rule_tells(mask):
    seen = set()
    for n_keys in range(1, 7):
        for n_queries in range(1, n_keys + 1):
            places = torch.arange(n_keys)[None]
            key = Slots(places, torch.zeros_like(places), True)
            query = Slots(places[:, -n_queries:], key.owners[:, -n_queries:], True)
            allowed, rule = visible(mask, query, key)[0, 0], shape_rule(mask, n_queries, n_keys)
            seen.add(rule)
            if rule == "all":
                assert allowed.all()
            elif rule == "causal":
                assert torch.equal(allowed, torch.ones(n_queries, n_keys, dtype=torch.bool).tril())
    assert seen - {"tensor"} or isinstance(mask, spec.PrefixMask)
