"""The torch parts against the NumPy definition, and every cache against no cache, on hand-made specs of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway import spec
from cutaway.generation.cache import Cache
from cutaway.parts.step import Given
from cutaway.reference import models as reference
from cutaway.spec import (
    ALiBi,
    Block,
    Branch,
    CausalMask,
    ChunkedMask,
    Dense,
    FromIds,
    Gated,
    LanguageHead,
    Latent,
    LayerNorm,
    Learned,
    LinearScaling,
    Llama3Scaling,
    MixtureOfExperts,
    MultiHead,
    NoPositions,
    QKNorm,
    Repeat,
    RMSNorm,
    RoPE,
    Router,
    SharedExpert,
    Sinusoidal,
    SlidingMask,
    Stage,
    T5Buckets,
    TokenEmbedding,
    YarnScaling,
)  # fmt: skip
from cutaway.tap import listening
from tests.conformance.models import drawn


def decoder(attn=None, ffn=None, embedding=None, placement="pre", **head):
    attn, ffn, norm = attn or MultiHead(n_heads=4, positions=RoPE()), ffn or Gated(d_ff=20), RMSNorm()
    where = {"pre": {"norm_in": norm}, "sandwich": {"norm_in": norm, "norm_out": norm}, "output": {"norm_out": norm}}
    if placement == "parallel":
        stages = (Stage(branches=(Branch(part=attn), Branch(part=ffn)), norm=LayerNorm()),)
    elif placement == "post":
        stages = tuple(Stage(branches=(Branch(part=part),), norm_sum=LayerNorm()) for part in (attn, ffn))
    else:
        stages = tuple(Stage(branches=(Branch(part=part, **where[placement]),)) for part in (attn, ffn))
    return spec.Decoder(
        d_model=16, vocab_size=23, context_length=64, embedding=embedding or TokenEmbedding(), final_norm=RMSNorm(),
        layers=(Repeat(times=2, blocks=(Block(stages=stages),)),), head=LanguageHead(**head),
    )  # fmt: skip


def heads(**more):
    return MultiHead(**({"n_heads": 4, "n_kv_heads": 2} | more))


def experts(**rule):
    return MixtureOfExperts(
        n_experts=4, n_active=2, expert=Gated(d_ff=6), router=Router(**rule),
        shared=SharedExpert(expert=Dense(d_ff=5), gated=True),
    )  # fmt: skip


SPECS = {
    "rope": decoder(heads(positions=RoPE())),
    "rope halves": decoder(heads(positions=RoPE(layout="halves", rotary_dim=2))),
    "rope linear": decoder(heads(positions=RoPE(scaling=LinearScaling(factor=3.0)))),
    "rope yarn": decoder(heads(positions=RoPE(scaling=YarnScaling(factor=4.0, original_length=8)))),
    "rope llama3": decoder(heads(positions=RoPE(scaling=Llama3Scaling(factor=8.0, original_length=8)))),
    "alibi": decoder(heads(n_heads=6, head_dim=4, positions=ALiBi())),
    "alibi bfloat16": decoder(heads(positions=ALiBi(bfloat16=True))),
    "t5": decoder(heads(positions=T5Buckets(n_buckets=8, max_distance=12))),
    "sliding": decoder(heads(mask=SlidingMask(window=3), positions=RoPE())),
    "chunked": decoder(heads(mask=ChunkedMask(size=4), positions=RoPE())),
    "sinusoidal": decoder(heads(), embedding=TokenEmbedding(positions=Sinusoidal(), factor="sqrt_d_model")),
    "sinusoidal halves": decoder(heads(), embedding=TokenEmbedding(positions=Sinusoidal(layout="halves"))),
    "learned": decoder(heads(), embedding=TokenEmbedding(positions=Learned(n_positions=64), norm=LayerNorm())),
    "learned from ids": decoder(
        heads(), embedding=TokenEmbedding(positions=Learned(n_positions=64, offset=1, counted=FromIds(pad_id=0)))
    ),
    "narrow embedding": decoder(embedding=TokenEmbedding(width=8, projection="before_positions"), tied=False),
    "everything on scores": decoder(
        heads(sinks=True, qk_norm=QKNorm(over="width"), clip=1.0, soft_cap=3.0, output_gate="per_element", scale=0.3)
    ),
    "norm per head": decoder(heads(qk_norm=QKNorm(norm=LayerNorm(), gain="per_head"), output_gate="per_head")),
    "biases": decoder(heads(q_bias=True, k_bias=True, v_bias=True, o_bias=True, value_dim=3)),
    "latent": decoder(
        Latent(n_heads=2, q_rank=6, kv_rank=5, nope_dim=4, rope_dim=2, value_dim=3, positions=RoPE())
    ),
    "latent without q_rank": decoder(Latent(n_heads=2, kv_rank=5, nope_dim=4, rope_dim=2, value_dim=3)),
    "experts": decoder(ffn=experts()),
    "experts sigmoid groups": decoder(
        ffn=experts(score="sigmoid", choice_bias=True, n_groups=2, group_score="top2", factor=2.0)
    ),
    "experts softmax after": decoder(ffn=experts(score="softmax_after", bias=True)),
    "clamped gate": decoder(ffn=Gated(d_ff=20, clamp=0.5, alpha=1.702, up_offset=1.0)),
    "dense": decoder(ffn=Dense(d_ff=20, activation="gelu")),
    "post": decoder(placement="post"),
    "sandwich": decoder(placement="sandwich"),
    "output": decoder(placement="output"),
    "parallel": decoder(placement="parallel"),
    "capped head": decoder(soft_cap=2.0, logit_factor=0.5, tied=False, bias=True),
    "no positions": decoder(heads(mask=CausalMask(), positions=NoPositions())),
}  # fmt: skip


def ids_of(rows=2, width=12):
    return torch.randint(1, 23, (rows, width), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", SPECS)
def test_torch_equals_numpy(name):
    model, ids = drawn(SPECS[name]), ids_of()
    weights = {key: p.detach().numpy() for key, p in model.named_parameters()}
    with torch.no_grad():
        got = model(ids).numpy()
    wanted = reference.forward(SPECS[name], weights, ids.numpy()).output
    assert np.abs(got - wanted).max() <= 1e-10 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("kind", ["growing", "fixed", "ring"])
@pytest.mark.parametrize("name", SPECS)
def test_cached_equals_recomputed(name, kind):
    model, ids = drawn(SPECS[name]), ids_of()
    cache = Cache(SPECS[name].blocks, kind, capacity=12)
    with torch.no_grad():
        whole = model(ids)
        steps = [model(ids[:, a:b], cache=cache) for a, b in ((0, 5), (5, 8), (8, 9), (9, 10), (10, 12))]
    assert (torch.cat(steps, 1) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["growing", "ring"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [name for name in SPECS if not name.startswith("experts")])
def test_padded_equals_alone(name, side, kind):
    model, ids = drawn(SPECS[name]), ids_of()
    lengths, width = (12, 7), 15
    padded, mask = torch.zeros(2, width, dtype=torch.long), torch.zeros(2, width, dtype=torch.long)
    for row, n in enumerate(lengths):
        where = slice(width - n, width) if side == "left" else slice(0, n)
        padded[row, where], mask[row, where] = ids[row, :n], 1
    cache = Cache(SPECS[name].blocks, kind)
    with torch.no_grad():
        parts = [model(padded[:, a:b], Given(mask=mask[:, a:b]), cache) for a, b in ((0, 9), (9, width))]
        for row, n in enumerate(lengths):
            alone = model(ids[row : row + 1, :n])[0]
            assert (torch.cat(parts, 1)[row][mask[row] == 1] - alone).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["rope", "alibi", "latent", "biases"])
@pytest.mark.parametrize("more", [(), ("*.pattern",)])
def test_a_row_that_sees_nothing_is_zero_not_nan(name, more):
    model, ids, heard = drawn(SPECS[name]), ids_of(), {}
    with torch.no_grad(), listening(model, lambda at, x: heard.update({at: x}), "*.attn.z", *more):
        out = model(ids, Given(mask=torch.zeros_like(ids)))
    assert out.isfinite().all() and not any(x.any() for at, x in heard.items() if at.endswith("z"))


def test_a_pooler_stands_beside_the_vectors():
    pooler = spec.Transform(width=5, activation="tanh", norm=LayerNorm())
    record = decoder().replace(head=spec.VectorHead(pooler=pooler))
    model, ids, heard = drawn(record), ids_of(), {}
    with torch.no_grad(), listening(model, lambda name, x: heard.update({name: x}), "head.*"):
        model(ids)
    weights = {key: p.detach().numpy() for key, p in model.named_parameters()}
    wanted = reference.forward(record, weights, ids.numpy())
    assert np.abs(heard["head.pooled"].numpy() - wanted.states["head.pooled"]).max() <= 1e-12
    assert np.abs(heard["head.vectors"].numpy() - wanted.output).max() <= 1e-12
