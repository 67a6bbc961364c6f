"""Patterns of names: which taps they mean."""

from __future__ import annotations

import pytest
import torch

from cutaway import build, preset
from cutaway.errors import InputError
from cutaway.tap import listening
from cutaway.tracing.record import record

IDS = torch.tensor([[5, 3, 9, 1], [2, 2, 8, 0]])


@pytest.fixture(scope="module")
def model():
    return build(preset("modern-tiny"), seed=0).eval()


def test_layers_count_from_the_end_in_every_pattern_of_several(model):
    for names, heard in (
        (("*.ffn.pre", "blocks[-1].attn.scores"), ["blocks.0.ffn.pre", "blocks.1.attn.scores", "blocks.1.ffn.pre"]),
        (("blocks[0].attn.q", "blocks[-2].attn.out"), ["blocks.0.attn.q", "blocks.0.attn.out"]),
        (("final", "blocks[-2:-1].attn.q", "blocks[-1:].attn.q"), ["blocks.0.attn.q", "blocks.1.attn.q", "final"]),
    ):
        with torch.no_grad(), record(model, *names) as run:
            model(IDS)
        assert run.names == heard


@pytest.mark.parametrize("patterns", [(["final"],), (3,), (None,)])
def test_patterns_that_are_no_texts_are_refused(model, patterns):
    with pytest.raises(InputError, match="one after the other"), listening(model, print, *patterns):
        pass
