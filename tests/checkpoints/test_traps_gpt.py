"""Traps of positions and attention (1 to 20), each with its figure, on the handed checkpoints and on the parts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BloomConfig, BloomForCausalLM, FalconConfig, FalconForCausalLM

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import family_of
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import InputError
from cutaway.generation import Cache, generate
from cutaway.models import build
from cutaway.parts import positions
from cutaway.parts.kernels import Scoring, attend
from cutaway.parts.step import Given, View
from tests.checkpoints.families.tiny import TOKENS, peer, same_logits, their_logits, tiny

LEARNED = ("gpt2-a", "gpt_neo-a", "opt-a")
DECODERS = (*LEARNED, "gpt_neox-a", "bloom-a", "falcon-a", "falcon-c", "mpt-a", "phi-a", "starcoder2-a", "llama-a")


@pytest.fixture
def case(shared):
    """A handed case: its model, its references, its tolerance."""

    def opened(name):
        folder = shared / "cases" / "given" / name
        index = json.loads((folder.parent / "index.json").read_text())["cases"]
        tolerance = next(each["tolerance"] for each in index if each["case"] == name)
        return open_checkpoint(folder / "model").load(), load_file(folder / "refs.safetensors"), tolerance

    return opened


def as_spec(model, record):
    """The same weights in a model of another spec."""
    other = build(record)
    other.load_state_dict(model.state_dict(), assign=True)
    return other.eval()


def changed(record, change):
    """A spec with every attention of its layers changed."""

    def branch(each):
        return each.replace(part=change(each.part)) if isinstance(each.part, spec.MultiHead) else each

    def block(each):
        stages = (stage.replace(branches=tuple(branch(b) for b in stage.branches)) for stage in each.stages)
        return each.replace(stages=tuple(stages))

    return record.replace(layers=tuple(block(each) for each in record.blocks))


@torch.no_grad()
def off(model, refs, key="full"):
    """The worst difference from the reference where tokens are real."""
    mask = refs.get(f"{key}.mask")
    got = model(refs[f"{key}.ids"], Given(mask=mask))
    difference = (got - refs[f"{key}.logits"]).abs().amax(-1)
    return float((difference if mask is None else difference[mask == 1]).max())


@pytest.mark.parametrize(
    ("layout", "want"), [("halves", [0.5403, 0, 0.8415, 0]), ("interleaved", [0.5403, 0.8415, 0, 0])]
)
def test_trap_01_interleaved_or_half_rotated_rope(layout, want):
    record = spec.RoPE(layout=layout)
    cos, sin = positions.rotation_tables(record, 4, torch.tensor([[1]]), torch.tensor([2]), torch.float32)
    turned = positions.turn(torch.tensor([1.0, 0, 0, 0]).view(1, 1, 1, 4), cos, sin, layout)
    np.testing.assert_allclose(turned.flatten().numpy(), want, atol=5e-5)


def test_trap_01_the_rows_of_a_folder_are_not_permuted(case):
    model, refs, tolerance = case("llama-a")
    assert off(model, refs) <= tolerance
    other = changed(model.spec, lambda part: part.replace(positions=part.positions.replace(layout="interleaved")))
    assert off(as_spec(model, other), refs) > 1


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 5e5, "rope_scaling": None},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"rotary_emb_base": 500000, "rotary_pct": 1.0},
    ],
)
def test_trap_02_rope_theta_in_each_layout_of_the_file(keys):
    sizes = {
        "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 9,
        "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5, "hidden_act": "gelu",
    }  # fmt: skip
    name = "gpt_neox" if "rotary_pct" in keys else "llama"
    record = family_of(name, "test").to_spec(Config(sizes | keys, "test"))
    assert record.blocks[0].branches[0].part.positions.base == 5e5


@pytest.mark.parametrize("name", ["llama-a", "gpt_neox-a", "phi-a", "falcon-a", "starcoder2-a"])
def test_trap_02_another_base_is_far_off(case, name):
    model, refs, tolerance = case(name)
    other = changed(model.spec, lambda part: part.replace(positions=part.positions.replace(base=50.0)))
    assert off(as_spec(model, other), refs) > 100 * tolerance


def test_trap_03_angles_keep_their_bits_in_a_bfloat16_model():
    places = torch.tensor([[256, 257]])
    cos, _ = positions.rotation_tables(spec.RoPE(), 8, places, torch.tensor([258]), torch.bfloat16)
    assert cos.dtype == torch.bfloat16
    assert cos[0, 0, :, 0].tolist() == torch.tensor([-0.0398, 0.8193]).bfloat16().tolist()


@pytest.mark.parametrize("name", LEARNED)
def test_trap_04_left_padding_moves_no_learned_position(case, name):
    model, refs, tolerance = case(name)
    assert off(model, refs, "lpad") <= tolerance
    learned = model.spec.embedding.positions.replace(counted=spec.ByColumn())
    other = model.spec.replace(embedding=model.spec.embedding.replace(positions=learned))
    assert off(as_spec(model, other), refs, "lpad") > 1


def test_trap_04_a_batch_continues_as_each_row_alone(case):
    model, refs, _ = case("gpt2-a")
    prompts = [refs[f"gen{i}.prompt"].tolist() for i in range(3)]
    options = model.spec.generation.replace(max_tokens=20)
    assert generate(model, prompts, options).ids == [generate(model, [ids], options).ids[0] for ids in prompts]


def test_trap_05_the_attention_factor_of_yarn():
    yarn = spec.YarnScaling(factor=4.0, original_length=32)
    assert positions.rope_factor(spec.RoPE(scaling=yarn)) == pytest.approx(1.138629, abs=1e-6)
    assert positions.rope_factor(spec.RoPE(scaling=yarn.replace(attention_factor=1.5))) == 1.5
    both = spec.YarnScaling(factor=40.0, original_length=32, mscale=1.0, mscale_all_dim=1.0)
    assert positions.rope_factor(spec.RoPE(scaling=both)) == 1.0


def test_trap_06_partial_rotary_which_dims_and_how_many(case):
    model, refs, tolerance = case("gpt_neox-a")
    assert model.spec.blocks[0].branches[0].part.positions.rotary_dim == 4
    other = changed(model.spec, lambda part: part.replace(positions=part.positions.replace(rotary_dim="head")))
    assert off(as_spec(model, other), refs) > 1000 * tolerance
    keys = {
        "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 9,
        "max_position_embeddings": 8, "hidden_act": "gelu", "partial_rotary_factor": 0.4, "rope_theta": 1e4,
    }  # fmt: skip
    rope = family_of("phi", "test").to_spec(Config(keys, "test")).blocks[0].branches[0].part.positions
    assert rope.rotary_dim == 6
    assert positions.rope_frequencies(rope, 6) == pytest.approx([1, 1e4 ** (-2 / 6), 1e4 ** (-4 / 6)])


@pytest.mark.parametrize(
    ("n_heads", "want"), [(8, [2.0**-i for i in range(1, 9)]), (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125])]
)
def test_trap_07_alibi_slopes_when_heads_are_not_a_power_of_two(n_heads, want):
    assert list(positions.alibi_slopes(n_heads, 8.0)) == want


@pytest.mark.parametrize("name", ["bloom-a", "falcon-c", "mpt-a"])
def test_trap_08_alibi_and_left_padding(case, name):
    model, refs, _ = case(name)
    ids, mask = refs["lpad.ids"], refs["lpad.mask"]
    with torch.no_grad():
        padded = model(ids, Given(mask=mask))
        for row, real in enumerate(mask == 1):
            assert (padded[row, real] - model(ids[row, real][None])[0]).abs().max() <= 1e-5


def test_trap_09_learned_positions_with_an_offset(case):
    model, refs, tolerance = case("opt-a")
    assert off(model, refs) <= tolerance
    table = model.spec.embedding.positions
    shifted = table.replace(n_positions=table.n_positions + 2, offset=0)
    other = model.spec.replace(embedding=model.spec.embedding.replace(positions=shifted))
    assert off(as_spec(model, other), refs) > 1


def test_trap_10_going_past_the_last_learned_position(case):
    model, refs, _ = case("gpt2-a")
    prompt = refs["full.ids"].flatten().repeat(2)[:40].tolist()
    options = model.spec.generation.replace(max_tokens=20, stop_ids=())
    result = generate(model, [prompt], options)
    assert len(result.ids[0]) == 8 and "context of 48 tokens is full" in str(result.reasons[0])
    with pytest.raises(InputError, match="context is 48"):
        model(torch.zeros(1, 49, dtype=torch.long))


@pytest.mark.parametrize("name", ["gpt_neo-a", "mistral-a"])
def test_trap_12_a_sliding_window_counts_the_token_itself(case, name):
    model, refs, tolerance = case(name)
    assert off(model, refs) <= tolerance

    def wider(part):
        slides = isinstance(part.mask, spec.SlidingMask)
        return part.replace(mask=spec.SlidingMask(window=part.mask.window + 1)) if slides else part

    assert off(as_spec(model, changed(model.spec, wider)), refs) > 100 * tolerance


@pytest.mark.parametrize("name", DECODERS)
def test_trap_14_a_row_of_padding_alone_is_finite_and_stays_alone(case, name):
    model, refs, _ = case(name)
    ids = refs["full.ids"][:, :3]
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    with torch.no_grad():
        got = model(ids, Given(mask=mask))
        assert torch.isfinite(got).all()
        assert (got[0] - model(ids[:1])[0]).abs().max() <= 1e-5


@pytest.mark.parametrize("written_out", [False, True])
def test_trap_15_a_hidden_key_is_below_every_score(written_out):
    q, k = torch.ones(1, 1, 1, 1).double(), torch.tensor([-2e5, -2e5 + 1, 0.0]).double().view(1, 1, 3, 1)
    view = View.where(torch.tensor([True, True, False]).view(1, 1, 1, 3))
    scoring = Scoring(1.0, 1e9 if written_out else None)  # with a cap the scores are written out
    weights = attend(torch.nn.Identity(), q, k, torch.eye(3).double()[None, None], view, scoring)
    np.testing.assert_allclose(weights.flatten().numpy(), [0.2689, 0.7311, 0], atol=5e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_trap_16_a_prompt_read_in_two_pieces_is_the_prompt(case, name):
    model, refs, _ = case(name)
    ids, cache = refs["full.ids"], Cache(model.spec.blocks)
    with torch.no_grad():
        pieces = [model(part, cache=cache) for part in (ids[:, :7], ids[:, 7:])]
        assert (torch.cat(pieces, 1) - model(ids)).abs().max() <= 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_trap_17_cache_and_no_cache_agree_at_every_step(case, name):
    model, refs, _ = case(name)
    ids, cache = refs["full.ids"], Cache(model.spec.blocks)
    with torch.no_grad():
        steps = [model(ids[:, i : i + 1], cache=cache) for i in range(ids.shape[1])]
        assert (torch.cat(steps, 1) - model(ids)).abs().max() <= 1e-5


def test_trap_18_query_head_h_reads_key_head_h_over_group(case):
    q, k = torch.zeros(1, 4, 1, 2), torch.zeros(1, 2, 1, 2)
    v = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1)
    assert attend(torch.nn.Identity(), q, k, v, View(), Scoring(1.0)).flatten().tolist() == [0, 0, 1, 1]
    model, refs, tolerance = case("starcoder2-a")
    for block in model.blocks:
        heads = block.attn.q_proj.weight.unflatten(0, (4, -1))
        block.attn.q_proj.weight = torch.nn.Parameter(heads[[0, 2, 1, 3]].flatten(0, 1))
        columns = block.attn.o_proj.weight.unflatten(1, (4, -1))
        block.attn.o_proj.weight = torch.nn.Parameter(columns[:, [0, 2, 1, 3]].flatten(1))
    assert off(model, refs) > 1000 * tolerance  # as if the key heads were tiled


def test_trap_19_head_dim_is_what_the_file_says(case):
    model, _, _ = case("qwen3-a")
    n = spec.sizes(model.spec.blocks[0].branches[0].part, model.spec.d_model)
    assert n.head_dim == 24 != model.spec.d_model // n.n_heads and n.scale == 24**-0.5


@pytest.mark.parametrize("name", ["gpt_neo-a", "gpt2-a"])
def test_trap_20_a_scale_that_is_not_one_by_root_head_dim(case, name):
    model, refs, tolerance = case(name)
    assert off(model, refs) <= tolerance
    other = changed(model.spec, lambda part: part.replace(scale="auto" if part.scale == 1.0 else 1.0))
    assert off(as_spec(model, other), refs) > 1000 * tolerance


def test_trap_20_scales_of_the_configuration():
    sizes = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 8, "vocab_size": 9, "d_model": 16, "n_heads": 4}
    switch = {"scale_attn_by_inverse_layer_idx": True}
    record = family_of("gpt2", "test").to_spec(Config(sizes | switch, "test"))
    assert [spec.sizes(block.branches[0].part, 16).scale for block in record.blocks] == [0.5, 0.25]
    table = {"n_layers": 1, "max_seq_len": 8, "attn_config": {"softmax_scale": 0.3}}
    record = family_of("mpt", "test").to_spec(Config(sizes | table, "test"))
    assert record.blocks[0].branches[0].part.scale == 0.3


SIZES = {"vocab_size": 61, "hidden_size": 64} | TOKENS


def away(folder, change):
    """How far our model with a changed spec is from the peer's, of the largest logit."""
    model = same_logits(folder)
    ids = torch.arange(3, 43)[None]
    want = their_logits(peer(folder), ids, torch.ones_like(ids))
    with torch.no_grad():
        return float((as_spec(model, change(model.spec))(ids) - want).abs().max() / want.abs().max())


def test_trap_bloom_skips_from_the_normed_input(tmp_path):
    config = BloomConfig(**SIZES, n_layer=2, n_head=4, apply_residual_connection_post_layernorm=True)
    folder = tiny(BloomForCausalLM, config, tmp_path)

    def from_x(record):
        def block(each):
            return each.replace(stages=tuple(stage.replace(residual=spec.Add()) for stage in each.stages))

        return record.replace(layers=tuple(block(each) for each in record.blocks))

    assert away(folder, from_x) > 0.1


@pytest.mark.parametrize(("n_heads", "exact"), [(8, True), (16, False)])
def test_trap_alibi_slopes_and_products_are_rounded_to_bfloat16(n_heads, exact, tmp_path):
    sizes = {"num_hidden_layers": 2, "num_attention_heads": n_heads, "max_position_embeddings": 64, "alibi": True}
    folder = tiny(FalconForCausalLM, FalconConfig(**SIZES, **sizes), tmp_path)

    def plain(record):
        return changed(record, lambda part: part.replace(positions=part.positions.replace(bfloat16=False)))

    worst = away(folder, plain)  # up to 8 heads slopes are powers of two, and short products need no rounding
    assert worst <= 1e-5 if exact else worst > 1e-4


def test_trap_falcon_scales_alibi_with_the_scores(tmp_path):
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "alibi": True}
    folder = tiny(FalconForCausalLM, FalconConfig(**SIZES, **sizes), tmp_path)

    def unscaled(record):
        return changed(record, lambda part: part.replace(positions=part.positions.replace(factor=1.0)))

    assert away(folder, unscaled) > 0.01
