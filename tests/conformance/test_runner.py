"""The short way of a decoded token equals the forwards on random specs: all that it takes, one row, every cache."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from cutaway import spec
from cutaway.generation import Cache, Run, generate
from cutaway.generation.runner import Runner
from cutaway.parts.step import Given
from tests.conformance.models import drawn, plain, translator
from tests.conformance.strategies import random_specs

N_NEW, PROMPT = 6, [3, 9, 10, 5, 6]
ODD = {
    "qk_norm": spec.NoQKNorm(), "clip": "none", "soft_cap": "none", "share_kv": "none", "sinks": False,
    "output_gate": "none",
}  # fmt: skip
BY_LENGTH = (spec.DynamicScaling, spec.LongRopeScaling)


def taken(record: spec.Decoder) -> spec.Decoder:
    """The same sizes, norms, biases, masks, positions, tables and head, with only such parts as the runner takes."""
    blocks = tuple(spec.Block(stages=stages) for block in record.blocks if (stages := _stages(block)))
    head = record.head if isinstance(record.head, spec.LanguageHead) else spec.LanguageHead(tied=False)
    return record.replace(layers=blocks, head=head)


def _stages(block: spec.Block) -> tuple[spec.Stage, ...]:
    """A stage for each branch, with the norm before it."""
    pairs = [(stage, branch, _part(branch.part)) for stage in block.stages for branch in stage.branches]
    return tuple(
        spec.Stage(branches=(spec.Branch(part=part, norm_in=branch.norm_in),), norm=stage.norm)
        for stage, branch, part in pairs
        if part is not None
    )


def _part(part: object) -> object:
    match part:
        case spec.MultiHead(positions=places):
            mask = spec.CausalMask() if isinstance(part.mask, spec.FullMask) else part.mask
            return part.replace(**ODD, mask=mask, positions=places if places.kind == "rope" else spec.NoPositions())
        case spec.MixtureOfExperts():
            return _part(part.expert)
        case spec.Gated():
            return part.replace(clamp="none", alpha=1.0, up_offset=0.0)
        case spec.Dense():
            return part
    return None


SPECS = [taken(record) for record in random_specs(360, seed=23) if isinstance(record, spec.Decoder)]


def test_enough_of_every_kind():
    kinds = Counter(kind for record in SPECS for kind in set(spec.kinds_in(record)))
    wanted = ["Part.multi_head", "Part.dense", "Part.gated", "Norm.layernorm", "Norm.rmsnorm", "Norm.none"]
    wanted += ["Mask.causal", "Mask.sliding", "Mask.chunked", "RelativePositions.rope", "AbsolutePositions.learned"]
    assert len(SPECS) >= 80 and min(kinds[kind] for kind in wanted) >= 5
    parts = [part for record in SPECS for part in spec.attentions(record.blocks)]
    assert sum(part.n_kv_heads not in ("n_heads", part.n_heads) for part in parts) >= 10
    assert sum(part.value_dim != "head_dim" for part in parts) >= 10


@pytest.mark.parametrize("index", range(len(SPECS)))
def test_it_gives_what_the_forwards_give(index):
    record, kind = SPECS[index], ("growing", "fixed", "ring")[index % 3]
    model = drawn(record)
    runner = Runner.of(model)
    assert runner is not None
    ids = torch.tensor([[3, 9, 10, 5, 6, 1, 8]])
    caches = [Cache(record.blocks, kind, capacity=7) for _ in range(2)]
    with torch.inference_mode():
        for cache in caches:
            model(ids[:, :3], cache=cache)
        for column in range(3, ids.shape[1]):
            one = ids[:, column : column + 1]
            got, wanted = runner(one, Given(), caches[0]), model(one, Given(), caches[1])
            assert got.shape == wanted.shape
            assert (got - wanted).abs().max() <= 1e-10 * max(1.0, float(wanted.abs().max()))


def goes_by_length(record: spec.Decoder) -> bool:
    """Whether a cached key keeps a rotation that reading anew would change."""
    places = [part.positions for part in spec.attentions(record.blocks)]
    return any(isinstance(each, spec.RoPE) and isinstance(each.scaling, BY_LENGTH) for each in places)


@pytest.mark.parametrize("index", [i for i, record in enumerate(SPECS) if not goes_by_length(record)][::5])
def test_a_text_is_that_of_reading_all_anew(index):
    model, options = drawn(SPECS[index]), spec.Generation(max_tokens=N_NEW)
    anew = generate(model, [PROMPT], options, Run(cache=None, logprobs=True))
    for kind in ("growing", "fixed", "ring"):
        got = generate(model, [PROMPT], options, Run(cache=kind, logprobs=True))
        assert got.ids == anew.ids
        assert max(abs(a - b) for a, b in zip(got.logprobs[0], anew.logprobs[0], strict=True)) < 1e-10


# What it does not take is left to the forwards.


def odd(part: Any = spec.Dense(d_ff=6), norm_out: Any = spec.NoNorm(), **stage: Any) -> spec.Decoder:
    """One plain block but for one of its stages."""
    mine = spec.Branch(part=part, norm_out=norm_out)
    attn, ffn = plain().blocks[0].stages
    other = ffn if mine.name == "attn" else attn
    return plain().replace(layers=(spec.Block(stages=(spec.Stage(branches=(mine,), **stage), other)),))


HEADS = spec.MultiHead(n_heads=4, n_kv_heads=2)
EXPERTS = spec.MixtureOfExperts(n_experts=2, n_active=1, expert=spec.Dense(d_ff=4))
LATENT = spec.Latent(n_heads=2, kv_rank=4, nope_dim=2, rope_dim=2, value_dim=3)
BOTH = spec.Branch(part=HEADS), spec.Branch(part=spec.Dense(d_ff=6))
BESIDE = spec.Block(stages=(spec.Stage(branches=BOTH),))
LEFT = {
    "soft cap": odd(HEADS.replace(soft_cap=2.0)), "clip": odd(HEADS.replace(clip=0.5)),
    "sinks": odd(HEADS.replace(sinks=True)), "gate": odd(HEADS.replace(output_gate="per_head")),
    "norms of q and k": odd(HEADS.replace(qk_norm=spec.QKNorm())), "alibi": odd(HEADS.replace(positions=spec.ALiBi())),
    "t5": odd(HEADS.replace(positions=spec.T5Buckets())), "latent": odd(LATENT), "nothing": odd(spec.NoAttention()),
    "shared keys": plain().replace(layers=(*odd(HEADS).layers, *odd(HEADS.replace(share_kv=0)).layers)),
    "clamp": odd(spec.Gated(d_ff=4, clamp=1.0)), "alpha": odd(spec.Gated(d_ff=4, alpha=1.7)),
    "offset": odd(spec.Gated(d_ff=4, up_offset=1.0)), "experts": odd(EXPERTS), "no network": odd(spec.NoFeedForward()),
    "a factor": odd(residual=spec.Add(scale=0.5)), "a learned factor": odd(residual=spec.Add(scale="channel")),
    "from the norm": odd(residual=spec.Add(skip="normed"), norm=spec.RMSNorm()),
    "no sum": odd(residual=spec.NoResidual()), "two branches": plain().replace(layers=(BESIDE,)),
    "a norm on the sum": odd(norm_sum=spec.RMSNorm()), "a norm on the way out": odd(norm_out=spec.RMSNorm()),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_it_does_not_take_runs_by_the_forwards(name):
    record = LEFT[name]
    model, options = drawn(record), spec.Generation(max_tokens=N_NEW)
    assert Runner.of(model) is None
    anew = generate(model, [PROMPT], options, Run(cache=None)).ids
    assert generate(model, [PROMPT], options).ids == anew


def test_it_takes_the_same_without_what_is_odd():
    assert Runner.of(drawn(odd(HEADS))) is not None and Runner.of(drawn(odd())) is not None


def test_several_rows_and_two_stacks_run_by_the_forwards(monkeypatch):
    monkeypatch.setattr(Runner, "__call__", lambda *given: pytest.fail("the short way is for one row"))
    model, options = drawn(plain()), spec.Generation(max_tokens=N_NEW, start_id=2)
    assert len(generate(model, [PROMPT, PROMPT], options).ids) == 2
    assert Runner.of(drawn(translator())) is None
    with pytest.raises(pytest.fail.Exception, match="short way"):
        generate(model, [PROMPT], options)
