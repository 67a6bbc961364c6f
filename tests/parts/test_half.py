"""In half precision statistics, gains and softmax are in float32, and rounded where the families round."""

from __future__ import annotations

import pytest
import torch

from cutaway import build, preset
from cutaway.parts.norms import RMSNorm
from cutaway.tap import listening

ONCE = 2.0**-8 * (1 + 1e-5)
"""The largest relative error of one rounding to bfloat16, and a little for float32."""


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def norm(gain, dtype=torch.bfloat16):
    made = RMSNorm(32, 1e-6, gain).to(dtype)
    made.weight.data += 0.3 * drawn(32, dtype=dtype)
    return made


def heard_of(model, x, *names):
    """What a listener keeps, once all is computed."""
    heard = {}
    with torch.no_grad(), listening(model, lambda name, x: heard.update({name: x}), *names):
        model(x)
    return [heard[name] for name in names]


def test_the_softmax_is_rounded_once():
    model = build(preset("modern-tiny"), seed=0, dtype=torch.bfloat16)
    for parameter in model.parameters():
        parameter.data *= 3.0
    at = "blocks.0.attn"
    scores, pattern = heard_of(model, torch.arange(24)[None], f"{at}.scores", f"{at}.pattern")
    exact = scores.double().softmax(-1)
    assert ((pattern.double() - exact).abs() <= ONCE * exact + 1e-30).all()


def test_one_plus_the_gain_is_rounded_with_the_result():
    gemma, x = norm("one_plus"), drawn(50, 32)
    wide = x.double()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + gemma.weight.double())
    with torch.no_grad():
        assert ((gemma(x).double() - exact).abs() <= ONCE * exact.abs()).all()


def test_a_plain_gain_meets_what_is_rounded_already():
    llama, x = norm("plain"), drawn(50, 32)
    (normed,) = heard_of(llama, x, "normed")
    with torch.no_grad():
        assert torch.equal(llama(x), normed.to(x.dtype) * llama.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_heard_is_not_written_over(dtype):
    x = drawn(50, 32, dtype=dtype)
    normed, scale = heard_of(norm("plain", dtype), x, "normed", "scale")
    assert torch.allclose(normed, x.float() / scale, rtol=1e-6, atol=0)
