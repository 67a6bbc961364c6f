"""Comparisons: what was changed is named, what is equal is called so, and transformers' tensors are ours by name."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch

from cutaway import build, load, preset
from cutaway.errors import InputError
from cutaway.tracing.compare import compare, difference, taps_of
from cutaway.tracing.numerics import cast
from cutaway.tracing.prompt import Prompt, any_prompt

PROMPT = Prompt(torch.tensor([[5, 3, 9, 1], [2, 2, 8, 0]]))


@pytest.fixture(scope="module")
def model():
    return build(preset("modern-tiny"), seed=0).eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("weight", "tap"),
    [
        ("blocks.1.ffn.up_proj.weight", "blocks.1.ffn.hidden"),
        ("blocks.1.ffn.gate_proj.weight", "blocks.1.ffn.pre"),
        ("blocks.0.attn.v_proj.weight", "blocks.0.attn.v"),
        ("blocks.1.attn.norm_in.weight", "blocks.1.attn.in"),
        ("final_norm.weight", "final"),
    ],
)
def test_one_weight_nudged_is_named_by_the_first_tensor_that_it_moves(model, weight, tap):
    other = copy.deepcopy(model)
    other.get_parameter(weight).view(-1)[3] += 0.5
    for pair in ((model, other), (other, model)):
        found = compare(*pair, PROMPT)
        assert found.first.name == tap
        before = list(found.differences)[: [each.name for each in found.differences].index(tap)]
        assert before and all(each.worst == 0 for each in before)
        assert f"part ways at {tap}" in str(found)


def test_a_model_is_itself(model):
    found = compare(model, copy.deepcopy(model), PROMPT)
    assert found.identical and found.first is None
    assert str(found) == f"equal bit for bit: {len(found.differences)} tensors"
    assert sum(row[-1] for row in found.table().rows) == 0


def test_two_types_differ_by_rounding(model):
    found = compare(model, cast(torch.bfloat16)(model), PROMPT)
    assert found.tolerance == 0.1 and not found.identical and found.first is None
    assert compare(model, cast(torch.bfloat16)(model), PROMPT, tolerance=1e-6).first.name == "embedding.tokens"
    assert compare(model, cast(torch.float64)(model), PROMPT).first is None


def test_the_fused_kernel_is_the_written_out_one_but_for_rounding(model):
    model = cast(torch.float64)(model)
    found = compare(model, taps_of(model, fused=True), PROMPT)
    names = {each.name for each in found.differences}
    assert found.tolerance == 1e-10 and found.first is None and found.only[0] > 0
    assert "blocks.0.attn.z" in names and "blocks.0.attn.pattern" not in names
    assert any(each.worst for each in found.differences if each.name.endswith("attn.z"))


def test_models_of_other_shapes_are_told_so(model):
    other = build(preset("gpt2-tiny"), seed=0).eval()
    found = compare(model, other, PROMPT)
    assert found.only[0] > 0 and found.only[1] > 0
    wide = build(preset("gpt2-mini"), seed=0).eval()
    first = compare(other, wide, PROMPT).first
    assert first.name == "embedding.tokens" and first.shapes == "(2, 4, 64) and (2, 4, 384)"


def test_nan_and_infinity_count_as_far_unless_both_have_them():
    a = torch.tensor([[1.0, -torch.inf, torch.nan]])
    assert difference("x", a, a.clone()).worst == 0
    assert difference("x", a, torch.tensor([[1.0, 2.0, torch.nan]])).worst == math.inf
    assert difference("x", torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, torch.nan]])).where == (0, 1)
    assert difference("x", torch.tensor([[4.0, -2.0]]), torch.tensor([[4.0, -2.5]])).relative == 0.125


SOME = ["llama-a", "gpt2-a", "bert-a-mlm", "t5-a", "falcon-a", "opt-a", "deepseek_v3-a", "mixtral-a", "gemma2-a"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if i > 1 else []) for i, n in enumerate(SOME)])
def test_transformers_tensors_are_ours_by_name(name, shared):
    pytest.importorskip("transformers")
    from cutaway.tracing.foreign import transformers

    folder = shared / "cases" / "given" / name / "model"
    loaded = load(folder, tokenizer=False)
    source, prompt = transformers(folder), any_prompt(loaded.spec)
    found = compare(loaded.model, source, prompt, tolerance=1e-5)
    assert found.first is None, str(found)
    names = {each.name for each in found.differences}
    assert "head.logits" in names and found.only[1] == 0
    assert sum(name.endswith("resid_pre") for name in names) >= 2
    assert sum(name.endswith("attn.pattern") for name in names) >= 2
    layer = next(n for n in sorted(names) if n.endswith("blocks.1.resid_pre")).removesuffix(".resid_pre")
    loaded.model.get_submodule(f"{layer}.attn.o_proj").weight.data.view(-1)[5] += 1.0
    wrong = compare(loaded.model, source, prompt, tolerance=1e-5).first.name
    assert wrong == f"{layer}.attn.out" if f"{layer}.attn.out" in names else wrong != f"{layer}.resid_pre"


def test_what_transformers_cannot_open_is_refused(tmp_path):
    from cutaway.loaded import Loaded
    from cutaway.tracing.foreign import transformers

    Loaded(build(preset("gpt2-tiny"), seed=0), None, "").save(Path(tmp_path))
    with pytest.raises(InputError, match="Hugging Face folders"):
        transformers(tmp_path)
