"""Integrated gradients: their sum is what the answer changed by, and on a linear path they are the plain product."""

from __future__ import annotations

import pytest
import torch

from cutaway.errors import InputError
from cutaway.tap import listening
from cutaway.tracing.gradients import Integrated, integrated_gradients
from cutaway.tracing.patching import Question
from cutaway.tracing.prompt import Prompt
from tests.tracing.test_patching import drawn

IDS = torch.tensor([[5, 3, 9, 1]])
KINDS = [  # ReLU bends f at once, so that no rule is exact there
    ("modern-tiny", None, 1e-4), ("gpt2-tiny", None, 1e-4), ("bert-tiny", None, 1e-4),
    ("t5-tiny", torch.tensor([[4, 8, 15]]), 2e-2),
]  # fmt: skip


@pytest.mark.parametrize("baseline", ["mean", "zero", 7])
@pytest.mark.parametrize(("name", "source", "share"), KINDS)
def test_the_sum_is_complete(name, source, share, baseline):
    if name == "t5-tiny" and baseline == "zero":
        pytest.skip("RMSNorm turns at once at zero; with ReLU behind it the integral needs too many points for a test")
    model, prompt = drawn(name), Prompt(IDS, source)
    question = Question(11, 20, position=2)
    found = integrated_gradients(model, prompt, question, baseline, share, most=512)
    logits = prompt.run(model)[0, 2]
    assert found.top == pytest.approx(float(logits[11] - logits[20]))
    assert abs(found.gap) <= share * abs(found.top - found.base)
    assert len(found.words) == len(found.values) == 4 + (0 if source is None else 3)
    assert ("side" in found.table().columns) == (source is not None)
    if isinstance(baseline, int):
        other = Prompt(torch.full_like(IDS, 7), None if source is None else torch.full_like(source, 7))
        logits = other.run(model)[0, 2]
        assert found.base == pytest.approx(float(logits[11] - logits[20]))


def test_a_causal_model_owes_nothing_to_later_tokens():
    found = integrated_gradients(drawn("modern-tiny"), Prompt(IDS), Question(11, position=1))
    assert found.values[2:].abs().max() == 0 and found.values[:2].abs().min() > 0


def test_they_are_the_mean_gradient_along_the_straight_path():
    """A fine midpoint sum, written out, over the embeddings from zero."""
    model, n = drawn("gpt2-tiny"), 400
    with torch.no_grad():
        x = model.embedding.table(IDS)
    total = torch.zeros_like(x)
    for i in range(n):
        here = ((i + 0.5) / n * x).requires_grad_()
        with listening(model, lambda name, _, here=here: here, "embedding.tokens"):
            model(IDS)[0, -1, 11].backward()
        total += here.grad
    wanted = (x * total / n).sum(-1)[0]
    found = integrated_gradients(model, Prompt(IDS), Question(11), "zero", tolerance=1e-6)
    torch.testing.assert_close(found.values, wanted, rtol=1e-3, atol=1e-4)


def test_the_budget_is_kept_and_told():
    found = integrated_gradients(drawn("modern-tiny"), Prompt(IDS), Question(11), "zero", 1e-12, most=40)
    assert found.n_points <= 40 + 8
    assert f"after {found.n_points} gradients" in found.table().note
    values = torch.tensor([0.5, 1.5])
    assert "large" not in Integrated(("a", "b"), values, 3.0, 1.05, 4).table().note
    assert "the gap is large" in Integrated(("a", "b"), values, 3.0, 1.5, 4).table().note


def test_a_token_that_is_not_there():
    with pytest.raises(InputError, match="ids 0 to 255"):
        integrated_gradients(drawn("modern-tiny"), Prompt(IDS), Question(999))
