"""Explanations: sums that must come out, ends that must meet, and heads whose kind is known beforehand."""

from __future__ import annotations

import pytest
import torch

from cutaway import build, load, preset
from cutaway.errors import InputError
from cutaway.tracing import heads
from cutaway.tracing.attribution import attribute
from cutaway.tracing.edit import edit, knock_out
from cutaway.tracing.heads import attention, entropy, head_scores, patterns, rollout
from cutaway.tracing.lens import logit_lens, next_token_losses, stream_sizes
from cutaway.tracing.neurons import top_activations
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import record
from cutaway.tracing.tables import Table, report
from tests.examples.test_learn import module
from tests.tracing.test_patching import drawn

IDS = torch.tensor([[5, 3, 9, 1, 7]])


def test_the_lens_ends_at_the_model_itself():
    model = drawn("modern-tiny")
    lens = logit_lens(model, Prompt(IDS))
    torch.testing.assert_close(lens.log_probabilities[-1], model(IDS)[0].float().log_softmax(-1))
    best = int(model(IDS)[0, -1].argmax())
    assert int(lens.ranks(best)[-1]) == 0
    table = lens.table()
    (grid,) = table.pictures()
    assert grid.words[-1][-1] == f"<{best}>" and grid.columns[0] == "'<5>'"
    assert table.rows[-1][0] == "blocks.1"
    assert table.rows[-1][1].startswith(f"'<{best}>'")


def test_letters_that_a_terminal_would_obey_are_written_out():
    model = drawn("modern-tiny")
    prompt = Prompt(IDS, name=lambda i: "a\x00\x1b[31m\u202eb")
    assert logit_lens(model, prompt).grid().words[0][0] == r"a\x00\x1b[31m\u202eb"
    hits = top_activations(model, [prompt], 0, 3).table(prompt.name)
    assert all(cell.isprintable() for row in hits.texts() for cell in row)


def test_next_token_losses_are_those_of_cross_entropy():
    model = drawn("modern-tiny")
    wanted = torch.nn.functional.cross_entropy(model(IDS)[0, :-1], IDS[0, 1:], reduction="none")
    torch.testing.assert_close(next_token_losses(model, Prompt(IDS)), wanted)


def test_a_norm_on_the_sum_is_refused():
    with pytest.raises(InputError, match="no sum of parts"):
        attribute(drawn("bert-tiny"), Prompt(IDS))
    model = build(preset("original-2017-tiny"), seed=0, dtype=torch.float64).eval()
    prompt = Prompt(IDS, IDS)
    with pytest.raises(InputError, match="no sum of parts"):
        attribute(model, prompt)
    lens = logit_lens(model, prompt)
    torch.testing.assert_close(lens.log_probabilities[-1], prompt.run(model)[0].float().log_softmax(-1))


def test_entropy_and_rollout_of_heads_that_look_at_one_token():
    weights = torch.zeros(1, 1, 2, 6, 6)
    weights[0, 0, 0] = torch.eye(6).roll(1, 0)
    weights[0, 0, 1, :, 0] = 1
    assert entropy(weights).abs().max() == 0
    flow = rollout(weights)
    torch.testing.assert_close(flow.sum(-1), torch.ones(1, 6))
    assert entropy(torch.full((4,), 0.25)) == pytest.approx(torch.log(torch.tensor(4.0)).item())


def test_stream_sizes_and_tables():
    model = drawn("modern-tiny")
    with record(model, "blocks.*.resid_post", "blocks.*.update") as run:
        model(IDS)
    table = stream_sizes(run)
    wanted = float(run["blocks.0.resid_post"].square().mean().sqrt())
    assert table.columns == ("block", "stream", "attn", "ffn")
    assert table.rows[0][:2] == ("blocks.0", pytest.approx(wanted, rel=1e-5))
    assert table.rows[1][3] == pytest.approx(float(run["blocks.1.ffn.update"].square().mean().sqrt()), rel=1e-5)
    assert "blocks.1" in str(table)
    page = report("a & b", table, Table("t", ("x",), [("<script>",)]))
    assert "<script>" not in page
    assert "http" not in page
    assert page.count("<table>") == 2 and page.count("<svg ") == 1


@pytest.fixture(scope="module")
def smollm2():
    model = load("smollm2").model
    return model.requires_grad_(False)


@pytest.mark.slow
def test_smollm2_attribution_sums_to_the_logit(smollm2):
    prompt = Prompt(torch.tensor([[504, 3575, 282, 4649, 314]]))
    for by in ("branch", "head", "neuron"):
        found = attribute(smollm2, prompt, by=by)
        assert float(found.values.sum()) == pytest.approx(float(prompt.run(smollm2)[0, -1].max()), rel=1e-4)


@pytest.mark.slow
def test_smollm2_has_induction_heads_and_copying_needs_them(smollm2):
    scores = head_scores(smollm2, n_tokens=32, n_rows=2)
    top = scores.top("induction", 10)
    assert all(float(scores.scores["induction"][head]) > 0.3 for head in top[:3])
    assert float(scores.scores["induction"].median()) < 0.05
    worst, others, copied = [], [], module("knock_out_induction").copied
    for seed in range(20):
        generator = torch.Generator().manual_seed(100 + seed)
        half = torch.randint(smollm2.spec.vocab_size, (2, 24), generator=generator)
        ids = torch.cat((half, half), 1)
        n_layers, n_heads = scores.scores["induction"].shape
        rest = [divmod(int(i), n_heads) for i in torch.randperm(n_layers * n_heads, generator=generator)]
        with edit(smollm2, knock_out(heads=top)):
            worst.append(copied(smollm2, ids))
        with edit(smollm2, knock_out(heads=[head for head in rest if head not in top][:10])):
            others.append(copied(smollm2, ids))
    gap = torch.tensor(others) - torch.tensor(worst)
    half_width = 1.96 * float(gap.std()) / 20**0.5
    means = sum(worst) / 20, sum(others) / 20
    print(
        f"without the top 10 {means[0]:.3f}, without 10 others {means[1]:.3f}, gap {gap.mean():.3f} ± {half_width:.3f}"
    )
    spread = [1.96 * float(torch.tensor(each).std()) / 20**0.5 for each in (worst, others)]
    assert float(gap.mean()) >= 0.20
    assert means[0] + spread[0] < means[1] - spread[1]


@pytest.mark.parametrize(("name", "source"), [("modern-tiny", None), ("bert-tiny", None), ("t5-tiny", IDS[:, :3])])
def test_the_weights_of_one_head(name, source):
    model, prompt = drawn(name), Prompt(IDS, source)
    found = {"self": attention(model, prompt, 1, 2)}
    if source is not None:
        found |= {where: attention(model, prompt, 1, 2, where) for where in ("cross", "encoder")}
    for where, grid in found.items():
        n_queries, n_keys = (3 if where == "encoder" else 5), (5 if where == "self" else 3)
        assert grid.values.shape == (n_queries, n_keys) == (len(grid.rows), len(grid.columns))
        torch.testing.assert_close(grid.values.sum(-1), torch.ones(n_queries))
        assert torch.equal(grid.values, patterns(model, prompt, where)[1, 0, 2])
    if source is None:
        with pytest.raises(InputError, match="no cross attention"):
            attention(model, prompt, 1, 2, "cross")


@pytest.mark.parametrize(("layer", "head", "message"), [(2, 0, "layers 0 to 1"), (-1, 0, "layers"), (0, 4, "0 to 3")])
def test_heads_that_are_not_there(layer, head, message):
    with pytest.raises(InputError, match=message):
        attention(drawn("modern-tiny"), Prompt(IDS), layer, head)


def test_each_kind_of_head_is_told_from_its_weights(monkeypatch):
    """Five heads made by hand: one of each kind, and one that looks everywhere."""
    n, model = 6, drawn("modern-tiny")
    weights = torch.zeros(1, 1, 5, 2 * n, 2 * n)
    query = torch.arange(n + 1, 2 * n)
    for head, key in enumerate((query - 1, query - n, query - n + 1, 0 * query)):
        weights[0, 0, head, query, key] = 1
    weights[0, 0, 4] = 1 / (2 * n)
    monkeypatch.setattr(heads, "patterns", lambda *_: weights)
    scores = head_scores(model, n_tokens=n).scores
    assert list(scores) == ["previous", "duplicate", "induction", "first"]
    for head, kind in enumerate(scores):
        assert scores[kind][0].tolist() == pytest.approx([float(i == head) for i in range(4)] + [1 / (2 * n)])


@pytest.mark.parametrize("name", ["bert-tiny", "t5-tiny", "gpt2-tiny"])
def test_heads_of_every_kind_of_model(name):
    table = head_scores(drawn(name)).table(2)
    assert len(table.rows) == 8 and len(table.pictures()) == 4
    assert "random tokens said twice" in table.note


def test_patterns_of_all_layers_are_rows_of_weights():
    weights = patterns(drawn("modern-tiny"), Prompt(IDS))
    assert weights.shape == (2, 1, 4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 4, 5))


def test_a_model_without_blocks_has_no_layers():
    model = build(preset("modern-tiny").replace(layers=()), seed=0).eval()
    with pytest.raises(InputError, match="layer 0: the model has no layers"):
        attention(model, Prompt(IDS))
