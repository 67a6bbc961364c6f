"""llama.cpp runs the files that are written of a real model: its tokens, its logits, its greedy text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cutaway
from cutaway.checkpoints.convert import convert

pytestmark = pytest.mark.slow
TEXT = "The river rises in the mountains, runs north for 300 miles and meets the sea near two small towns.\n\n  Später:"
PROMPT = "The capital of France is"
APART = {"F32": 1e-4, "F16": 2e-3, "BF16": 2e-2, "Q8_0": 4e-2, "Q4_0": 6e-2, "Q4_1": 6e-2}
"""Worst difference from ours to the largest logit: llama.cpp rounds what it multiplies with narrow weights."""
NATS = {"F32": 1e-6, "F16": 1e-3, "BF16": 1e-2, "Q8_0": 1e-2, "Q4_0": 1e-2, "Q4_1": 1e-2}
"""Mean divergence of its next tokens from ours."""


@pytest.mark.parametrize("kind", APART)
def test_a_written_file_says_the_same(kind, smollm2, tmp_path):
    llama_cpp = pytest.importorskip("llama_cpp")
    convert(smollm2.path, "gguf", tmp_path / "out", dtype=kind)
    (path,) = (tmp_path / "out").iterdir()
    theirs = llama_cpp.Llama(
        str(path), n_ctx=128, n_batch=128, logits_all=True, n_threads=1, verbose=False, type_k=0, type_v=0
    )
    ours = cutaway.load(path)
    ids = ours.encode(TEXT)
    assert theirs.tokenize(TEXT.encode(), add_bos=False, special=True) == ids
    got, want = logits(theirs, ids), ours(torch.tensor([ids]))[0]
    apart = (got - want).abs().max(-1).values
    assert apart.max() <= APART[kind] * want.abs().max()
    top = want.topk(2).values
    sure = top[:, 0] - top[:, 1] > 2 * apart
    assert sure.sum() >= (5 if kind.startswith("Q") else len(ids) // 2)
    shares = want.log_softmax(-1)
    assert (shares.exp() * (shares - got.log_softmax(-1))).sum(-1).mean() < NATS[kind]
    assert torch.equal(got.argmax(-1)[sure], want.argmax(-1)[sure])
    start = ours.encode(PROMPT)
    options = ours.spec.generation.replace(max_tokens=12, temperature=0.0, stop_ids=())
    new = cutaway.generate(ours.model, [start], options).ids[0]
    said = logits(theirs, start + new)[len(start) - 1 : -1]
    top = said.topk(2).values
    near = top[:, 0] - top[:, 1] < 2 * APART[kind] * top[:, 0]
    assert all(
        chosen == token or close for chosen, token, close in zip(said.argmax(-1).tolist(), new, near, strict=True)
    )
    if kind == "F32":
        assert said.argmax(-1).tolist() == new


def logits(theirs, ids):
    theirs.reset()
    theirs.eval(ids)
    return torch.tensor(np.array(theirs.scores[: len(ids)]))
