"""Traps of routers, experts, latent attention and sinks, each by numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import family_of
from cutaway.parts.build import Builder
from cutaway.parts.kernels import Scoring, attend
from cutaway.parts.moe import Router
from cutaway.parts.positions import rope_factor
from cutaway.parts.step import View


def routed(logits, n_active, choice_bias=None, **rule):
    """Weights and chosen experts of one token whose logits are given."""
    part = spec.MixtureOfExperts(
        n_experts=len(logits), n_active=n_active, expert=spec.Gated(d_ff=1),
        router=spec.Router(choice_bias=choice_bias is not None, **rule),
    )  # fmt: skip
    router = Router(part, 1)
    with torch.no_grad():
        router.weight.copy_(torch.tensor(logits)[:, None])
        if choice_bias is not None:
            router.choice_bias.copy_(torch.tensor(choice_bias))
        _, weights, chosen = router(torch.ones(1, 1))
    return weights[0].tolist(), chosen[0].tolist()


def logit(p):
    return math.log(p / (1 - p))


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        ({"normalise": False}, [0.6439, 0.2369]),
        ({"normalise": True}, [0.7311, 0.2689]),
        ({"score": "softmax_after"}, [0.7311, 0.2689]),
        ({"score": "sigmoid", "normalise": False}, [0.8808, 0.7311]),
        ({"score": "sigmoid"}, [0.5464, 0.4536]),
        ({"score": "sigmoid", "factor": 2.5}, [1.3661, 1.1339]),
    ],
)
def test_trap_27_when_weights_are_normalised(rule, want):
    weights, chosen = routed([2.0, 1.0, 0.0, -1.0], 2, **rule)
    assert chosen == [0, 1] and weights == pytest.approx(want, abs=5e-5)


def test_trap_27_choice_bias_picks_but_does_not_weigh():
    logits = [logit(p) for p in (0.9, 0.6, 0.5, 0.2)]
    weights, chosen = routed(logits, 2, choice_bias=[0.0, -0.5, 0.0, 0.6], score="sigmoid", normalise=False)
    assert chosen == [0, 3] and weights == pytest.approx([0.9, 0.2], abs=1e-6)
    weights, chosen = routed(logits, 2, choice_bias=[-1.0, 0.0, 0.0, 0.6], score="sigmoid", factor=2.0)
    assert chosen == [3, 1]  # in the order of biased scores: 0.8, 0.6
    assert weights == pytest.approx([2 * 0.2 / 0.8, 2 * 0.6 / 0.8], abs=1e-6)  # divided after the choice


GROUPS = [
    logit(p) for p in (0.9, 0.1, 0.6, 0.7, 0.3, 0.2)
]  # three groups of two: best 0.9, 0.7, 0.3; sums 1.0, 1.3, 0.5


@pytest.mark.parametrize(("score", "want"), [("max", [0, 1]), ("top2", [3, 2])])
def test_trap_27_a_group_is_scored_by_its_best_or_by_its_best_two(score, want):
    _, chosen = routed(GROUPS, 2, score="sigmoid", n_groups=3, n_active_groups=1, group_score=score)
    assert chosen == want


def test_trap_27_experts_out_of_their_groups_lose_even_to_negative_scores():
    """With a mask of 0 in place of minus infinity experts 0 and 1 would win: biased scores may lie below 0."""
    bias = [-5.0, -5.0, -2.0, -2.0, -5.0, -5.0]
    _, chosen = routed(GROUPS, 2, choice_bias=bias, score="sigmoid", n_groups=3, n_active_groups=1, group_score="top2")
    assert chosen == [3, 2]


def test_trap_27_the_choice_bias_counts_for_groups_too():
    bias = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    weights, chosen = routed(
        GROUPS, 2, choice_bias=bias, score="sigmoid", n_groups=3, n_active_groups=1, group_score="top2", normalise=False
    )
    assert chosen == [4, 5] and weights == pytest.approx([0.3, 0.2], abs=1e-6)


def test_trap_27_of_equal_scores_the_lower_index_comes_first():
    assert routed([1.0] * 40, 3)[1] == [0, 1, 2]
    assert routed([0.0, 1.0] * 20, 3)[1] == [1, 3, 5]
    assert routed([1.0] * 40, 3, n_groups=10, n_active_groups=2)[1] == [0, 1, 2]


@pytest.mark.parametrize(
    ("gate", "up", "want"),
    [
        (1.0, 2.0, 1.0 / (1 + math.exp(-1.702)) * 3.0),
        (10.0, 0.0, 7.0 / (1 + math.exp(-1.702 * 7)) * 1.0),  # the gate is cut above
        (-10.0, 0.0, -10.0 / (1 + math.exp(17.02)) * 1.0),  # but not below
        (1.0, 9.0, 1.0 / (1 + math.exp(-1.702)) * 8.0),  # up on both sides, and the 1 is added after that
        (1.0, -9.0, 1.0 / (1 + math.exp(-1.702)) * -6.0),
    ],
)
def test_trap_gpt_oss_clamp_and_offset(gate, up, want):
    record = family_of("gpt_oss", "test").to_spec(Config(GPT_OSS, "test")).blocks[0].branches[1].part.expert
    part = Builder(1, spec.Dropout()).part(record.replace(d_ff=1))
    with torch.no_grad():
        for name, value in (("gate_proj", gate), ("up_proj", up), ("down_proj", 1.0)):
            getattr(part, name).weight.fill_(value)
            getattr(part, name).bias.zero_()
        got = part.double()(torch.ones(1, 1, 1, dtype=torch.float64), None, None)
    assert float(got) == pytest.approx(want, rel=1e-6)


def test_trap_22_a_sink_takes_its_share_and_gives_nothing():
    q, v = torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 2, 4)
    z = attend(
        torch.nn.Identity(), q, torch.zeros(1, 1, 2, 4), v, View(None, False, None, torch.zeros(1)), Scoring(1.0)
    )
    assert z.flatten().tolist() == pytest.approx([2 / 3] * 4)


DEEPSEEK = {
    "vocab_size": 31, "hidden_size": 32, "intermediate_size": 40, "moe_intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
    "n_shared_experts": 1, "routed_scaling_factor": 2.5, "kv_lora_rank": 10, "q_lora_rank": 14, "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4, "v_head_dim": 5, "n_group": 2, "topk_group": 1, "max_position_embeddings": 640,
    "rms_norm_eps": 2e-3, "hidden_act": "silu", "rope_theta": 10000.0,
}  # fmt: skip
GPT_OSS = {
    "vocab_size": 31, "hidden_size": 32, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 150000.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "rotation", "scale"),
    [
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.873854),
        ({}, 1.368888, 1.0),
        ({"mscale": 1.0}, 1.368888, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 0.5}, 1.368888 / 1.184444, 1.184444**2),
        ({"mscale_all_dim": 1.0}, 1.368888, 1.873854),
        ({"mscale": 1.0, "mscale_all_dim": 1.0, "attention_factor": 1.1}, 1.1, 1.873854),
    ],
)
def test_trap_5_mscale_is_a_ratio_on_the_rotation_and_a_square_on_the_scores(extra, rotation, scale):
    scaling = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 16} | extra
    record = family_of("deepseek_v3", "test").to_spec(Config(DEEPSEEK | {"rope_scaling": scaling}, "test"))
    attn = record.blocks[0].branches[0].part
    assert rope_factor(attn.positions) == pytest.approx(rotation, rel=1e-6)
    assert spec.sizes(attn, 32).scale == pytest.approx(16**-0.5 * scale, rel=1e-6)


def test_trap_25_the_norms_of_latents_do_not_read_rms_norm_eps():
    record = family_of("deepseek_v3", "test").to_spec(Config(DEEPSEEK, "test"))
    attn = record.blocks[0].branches[0].part
    assert (attn.q_norm.eps, attn.kv_norm.eps, record.final_norm.eps) == (1e-6, 1e-6, 2e-3)


def test_trap_1_rope_interleave_chooses_the_layout():
    read = family_of("deepseek_v3", "test").to_spec
    layouts = [read(Config(DEEPSEEK | extra, "test")).blocks[0].branches[0].part.positions.layout for extra in (
        {}, {"rope_interleave": True}, {"rope_interleave": False},
    )]  # fmt: skip
    assert layouts == ["interleaved", "interleaved", "halves"]
