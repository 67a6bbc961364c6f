"""The tuned lens: it starts at the nearest stream, helps on text that was held out, and ends at the model."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import InputError
from cutaway.tracing.lens import logit_lens
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.tuned import RIDGE, Translator, tune
from tests.tracing.test_patching import drawn


def ids_of(seed, n=32):
    return torch.randint(256, (1, n), generator=torch.Generator().manual_seed(seed))


WINDOWS = [Prompt(ids_of(i)) for i in range(10)]
PAIRS = [Prompt(ids_of(i, 16), ids_of(100 + i, 5)) for i in range(20)]


def test_a_translator_starts_at_the_nearest_stream():
    """The slope of what is minimised is 0 there."""
    generator = torch.Generator().manual_seed(0)
    h, last = (torch.randn(40, 8, generator=generator, dtype=torch.float64) * size for size in (1.0, 3.0))
    start = Translator.nearest(h, last)
    w = 1 / last.square().mean(-1)
    middle = (h * w[:, None]).sum(0) / w.sum()
    ridge = RIDGE * ((h - middle).square() * w[:, None]).sum(0).mean()
    loss = ((last - start(h)).square().sum(-1) * w).sum() + ridge * start.matrix.square().sum()
    loss.backward()
    assert float(start.matrix.grad.abs().max()) < 1e-9 and float(start.shift.grad.abs().max()) < 1e-9
    assert torch.equal(Translator(torch.zeros(8, 8), torch.zeros(8))(h.float()), h.float())


def test_a_stream_that_is_a_linear_image_is_found():
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(4000, 8, generator=generator, dtype=torch.float64)
    last = 5 + h @ torch.randn(8, 8, generator=generator, dtype=torch.float64)
    error = (Translator.nearest(h, last)(h) - last).detach()
    assert float(error.square().mean() / last.square().mean()) < 1e-2


@pytest.mark.parametrize(("name", "prompts"), [("modern-tiny", WINDOWS), ("bert-tiny", WINDOWS), ("t5-tiny", PAIRS)])
def test_training_brings_every_depth_nearer_to_the_model(name, prompts):
    model = drawn(name)
    lens = tune(model, prompts, steps=30)
    assert lens.depths == ("embedded", "blocks.0") and lens.n_tokens == (256, 64)
    assert (lens.after < 0.9 * lens.before).all(), lens.table()
    held = prompts[-len(prompts) // 5 :]
    exact = torch.cat([prompt.run(model)[0] for prompt in held]).log_softmax(-1)
    plain = torch.cat([logit_lens(model, p).log_probabilities[1] for p in held])
    wanted = (exact.exp() * (exact - plain)).sum(-1).mean()
    torch.testing.assert_close(lens.before[1], wanted, rtol=1e-5, atol=1e-6)
    first = prompts[0]
    read = lens.read(model, first)
    assert read.depths == ("embedded", "blocks.0", "blocks.1")
    torch.testing.assert_close(read.log_probabilities[-1], first.run(model)[0].float().log_softmax(-1))
    assert torch.equal(tune(model, prompts, steps=30).after, lens.after)
    assert read.table().rows[0][0] == "embedded"


def test_training_leaves_the_model_as_it_was():
    model = drawn("modern-tiny").requires_grad_(True)
    tune(model, WINDOWS[:2], steps=2)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize(
    ("name", "prompts", "message"),
    [("modern-tiny", WINDOWS[:1], "two windows"), ("t5-tiny", WINDOWS, "a source too"),
     ("modern-tiny", PAIRS, "no encoder")],
)  # fmt: skip
def test_mistakes_are_named(name, prompts, message):
    with pytest.raises(InputError, match=message):
        tune(drawn(name), prompts)
