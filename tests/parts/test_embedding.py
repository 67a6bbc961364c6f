"""The factor on embeddings is rounded to the model's type before it multiplies."""

from __future__ import annotations

import torch

from cutaway import build, spec
from cutaway.tap import listening


def test_the_factor_has_the_models_type():
    table, heard = spec.TokenEmbedding(factor="sqrt_d_model"), {}
    record = spec.Decoder(d_model=20, vocab_size=50, context_length=64, embedding=table, layers=())
    model, factor = build(record, seed=0, dtype=torch.bfloat16), torch.tensor(20.0).sqrt()
    with torch.no_grad(), listening(model, lambda name, x: heard.update({name: x}), "embedding.tokens", "embedded"):
        model(torch.arange(50)[None])
    tokens = heard["embedding.tokens"].float()
    assert torch.equal(heard["embedded"], (tokens * factor.bfloat16().float()).bfloat16())
    assert not torch.equal(heard["embedded"], (tokens * factor).bfloat16())
