"""The tuned lens: it starts as the logit lens, training helps on text that was held out, and it ends at the model."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import InputError
from cutaway.tracing.lens import logit_lens
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.tuned import Translator, tune
from tests.tracing.test_patching import drawn

WINDOWS = [torch.randint(256, (32,), generator=torch.Generator().manual_seed(i)).tolist() for i in range(10)]
IDS = torch.tensor([WINDOWS[0]])


def test_an_untrained_translator_changes_nothing():
    h = torch.randn(3, 8)
    assert torch.equal(Translator(8, 1.0, torch.float32)(h), h)


def test_training_brings_every_depth_nearer_to_the_model():
    model = drawn("modern-tiny")
    lens = tune(model, WINDOWS, steps=30)
    assert lens.depths == ("embedded", "blocks.0") and lens.n_tokens == (256, 64)
    assert (lens.after < 0.9 * lens.before).all(), lens.table()
    exact = model(torch.tensor(WINDOWS[-2:])).flatten(0, 1).log_softmax(-1)
    plain = torch.stack([logit_lens(model, torch.tensor([w])).log_probabilities[1] for w in WINDOWS[-2:]]).flatten(0, 1)
    wanted = (exact.exp() * (exact - plain)).sum(-1).mean()
    torch.testing.assert_close(lens.before[1], wanted, rtol=1e-5, atol=1e-6)
    read = lens.read(model, IDS)
    assert read.depths == ("embedded", "blocks.0", "blocks.1")
    torch.testing.assert_close(read.log_probabilities[-1], model(IDS)[0].float().log_softmax(-1))
    assert not torch.equal(read.log_probabilities[0], logit_lens(model, IDS).log_probabilities[0])
    again = tune(model, WINDOWS, steps=30)
    assert torch.equal(again.after, lens.after)
    assert read.table(Prompt(IDS)).rows[0][0] == "embedded"


@pytest.mark.parametrize(
    ("name", "windows", "message"), [("t5-tiny", WINDOWS, "pairs"), ("modern-tiny", WINDOWS[:1], "two windows")]
)
def test_mistakes_are_named(name, windows, message):
    with pytest.raises(InputError, match=message):
        tune(drawn(name), windows)
