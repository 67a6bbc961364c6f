"""Numerics: what was planted is named, ranges are those of the tensors, and errors are those of rounding."""

from __future__ import annotations

import copy

import pytest
import torch

from cutaway import build, generate, preset, spec
from cutaway.tracing.numerics import cast, errors, watch
from cutaway.tracing.pictures import save
from cutaway.tracing.prompt import Prompt, any_prompt
from cutaway.tracing.record import record
from cutaway.tracing.tables import report

PROMPT = Prompt(torch.tensor([[5, 3, 9, 1], [2, 2, 8, 0]]))


@pytest.fixture
def model():
    return build(preset("modern-tiny"), seed=0).eval().requires_grad_(False)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("weight", "index", "tap"),
    [
        ("blocks.1.ffn.up_proj.weight", (3, 0), "blocks.1.ffn.hidden"),
        ("blocks.0.attn.k_proj.weight", (7, 2), "blocks.0.attn.k"),
        ("blocks.1.attn.o_proj.weight", (7, 2), "blocks.1.attn.out"),
        ("embedding.tokens.weight", (9, 5), "embedding.tokens"),
        ("final_norm.weight", (4,), "final"),
    ],
)
def test_a_planted_number_is_named_by_its_tensor_and_its_weight(model, weight, index, tap, bad):
    model.get_parameter(weight)[index] = bad
    with watch(model) as found:
        PROMPT.run(model)
    assert found.first.name == tap
    assert found.weights == (weight,)
    assert f"number {list(found.ranges).index(tap) + 1} of {len(found.ranges)} in the pass" in str(found)
    with record(model, tap) as run:
        PROMPT.run(model)
    assert not run[tap][found.first.where].isfinite()
    assert tap in str(found) and weight in str(found)


def test_a_healthy_model_is_told_so_although_masks_hide_scores(model):
    with watch(model) as found:
        PROMPT.run(model)
    assert found.first is None
    assert str(found) == f"no NaN and no infinity in {len(found.ranges)} tensors"


def test_scores_that_overflow_are_no_masks(model):
    model.blocks[0].attn.q_proj.weight[:16] *= 1e7  # the first of four heads
    model.blocks[0].attn.k_proj.weight *= 1e4
    half = cast(torch.float16)(model)
    half.blocks[0].attn.q_proj.weight.clamp_(-3e4, 3e4)
    half.blocks[0].attn.k_proj.weight.clamp_(-3e4, 3e4)
    with watch(half) as found:
        PROMPT.run(half)
    assert found.first is not None and found.first.name.startswith("blocks.0.attn.")


def test_ranges_are_those_of_the_tensors(model):
    names = ["blocks.1.ffn.hidden", "blocks.0.attn.pattern", "head.logits"]
    with watch(model) as found, record(model, *names) as run:
        PROMPT.run(model)
    for name in names:
        x, one = run[name], found.ranges[name]
        assert (one.low, one.high) == (float(x.min()), float(x.max()))
        assert one.total / one.n == pytest.approx(float(x.abs().mean()), rel=1e-5)
        assert one.n_zero == int((x == 0).sum())
        assert one.headroom == pytest.approx(torch.finfo(torch.float32).max / float(x.abs().max()))
    assert found.ranges["blocks.0.attn.pattern"].n_zero == 2 * 4 * 6  # rows, heads, future keys
    kinds = [row[0] for row in found.table().rows]
    assert "*.attn.pattern" in kinds and len(kinds) == len(set(kinds)) < len(found.table(each=True).rows)


def test_subnormal_numbers_are_counted(model):
    half = cast(torch.float16)(model)
    half.blocks[0].attn.o_proj.weight *= 1e-3
    with watch(half) as found, record(half, "blocks.0.attn.out") as run:
        PROMPT.run(half)
    x, one = run["blocks.0.attn.out"].abs(), found.ranges["blocks.0.attn.out"]
    assert one.n_subnormal == int(((x > 0) & (x < 2.0**-14)).sum()) > 0


def test_the_steps_of_a_generation_are_counted_together(model):
    with watch(model) as found:
        generate(model, [[5, 3, 9]], spec.Generation(max_tokens=3))
    assert found.ranges["blocks.0.resid_post"].n == 5 * 64


def test_errors_are_those_of_rounding_and_a_layer_alone_has_its_own(model):
    def broken(whole):
        other = cast(torch.float32)(whole)
        other.blocks[1].ffn.down_proj.weight *= 1.01
        return other

    found = errors(model, PROMPT, {"exact": cast(torch.float64), "float32": cast(torch.float32), "broken": broken})
    assert found.depths == ("embedded", "blocks.0", "blocks.1", "final", "head")
    assert found.whole["exact"].tolist() == [0.0] * 5
    assert 0 < float(found.whole["float32"].max()) < 1e-5
    assert found.same["exact"] == 1.0
    assert float(found.whole["broken"][1]) < 1e-5 < 1e-4 < float(found.whole["broken"][2])
    assert float(found.alone["broken"][1]) < 1e-5 < 1e-4 < float(found.alone["broken"][2])
    exact_model = cast(torch.float64)(model)
    with record(exact_model, "blocks.0.resid_post") as exact:
        PROMPT.run(exact_model)
    half = cast(torch.bfloat16)(model)
    with record(half, "blocks.0.resid_post") as run:
        PROMPT.run(half)
    a, b = run["blocks.0.resid_post"].double(), exact["blocks.0.resid_post"]
    wanted = ((a - b).norm(dim=-1) / b.norm(dim=-1)).mean()
    assert float(errors(model, PROMPT).whole["bfloat16"][1]) == pytest.approx(float(wanted))
    assert [table.columns for table in found.tables()] == [("after", "exact", "float32", "broken")] * 2


def test_an_encoder_decoder_is_watched_on_both_sides():
    model = build(preset("t5-tiny"), seed=0).eval()
    prompt = any_prompt(model.spec)
    with watch(model) as found:
        prompt.run(model)
    assert {"encoder.blocks.0.attn.q", "decoder.blocks.1.cross.pattern", "head.logits"} <= set(found.ranges)
    assert [name for name in errors(model, prompt).depths if name.startswith("encoder")] != []


def test_a_model_without_a_tokenizer_is_given_an_image_where_it_reads_images():
    sizes = {"image_height": 4, "image_width": 4, "patch_height": 2, "patch_width": 2}
    block = spec.Block(
        stages=(spec.Stage(branches=(spec.Branch(part=spec.MultiHead(n_heads=2, mask=spec.FullMask())),)),)
    )
    record_ = spec.ImageEncoder(
        d_model=8, embedding=spec.PatchEmbedding(**sizes), layers=(block,), head=spec.ClassHead(n_classes=3)
    )
    prompt = any_prompt(record_)
    found = errors(build(record_, seed=0).eval(), prompt)
    assert prompt.size == "an image" and 0 < float(found.whole["bfloat16"][-1]) < 0.1


def test_the_model_is_left_as_it_was(model):
    before = copy.deepcopy(model.state_dict())
    errors(model, PROMPT)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_a_variant_that_overflows_is_told_and_drawn(model, tmp_path):
    model.blocks[0].ffn.down_proj.weight *= 1e8
    found = errors(model, PROMPT)
    assert not found.whole["float16"][1].isfinite() and found.whole["bfloat16"].isfinite().all()
    tables = found.tables()
    assert "nan" in str(tables[0]) or "inf" in str(tables[0])
    page = report("Numerics", *tables)
    assert page.count("<svg ") == 2 and "mathdefault" not in page and "/ nan)" not in page and "/ inf)" not in page
    save(tables, tmp_path / "errors.png")
    assert (tmp_path / "errors.png").stat().st_size > 1000
