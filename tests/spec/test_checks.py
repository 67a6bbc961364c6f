"""Each illegal combination is named by its path, with values that are legal indeed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from cutaway import spec
from cutaway.errors import SpecError
from cutaway.spec import (
    Add,
    Block,
    Branch,
    ChunkedMask,
    Cross,
    Decoder,
    Dense,
    DynamicScaling,
    Encoder,
    EncoderDecoder,
    FromIds,
    FullMask,
    Gated,
    Generation,
    LanguageHead,
    Latent,
    Learned,
    Llama3Scaling,
    LongRopeScaling,
    MaskedHead,
    MixtureOfExperts,
    MultiHead,
    NoAttention,
    NoCross,
    NoFeedForward,
    PrefixDecoder,
    PrefixMask,
    QKNorm,
    Repeat,
    RMSNorm,
    RoPE,
    Router,
    SharedExpert,
    Side,
    Sinusoidal,
    SlidingMask,
    Stage,
    T5Buckets,
    TokenEmbedding,
    Transform,
    TwoSidedMask,
    VectorHead,
    YarnScaling,
)  # fmt: skip
from cutaway.spec.head import ClassHead
from cutaway.spec.pairs import all_kinds, kinds_in, legal_pairs, pairs_in
from tests.conformance.strategies import any_spec, random_specs

NORM = RMSNorm()


def block(*parts, **stage):
    return Block(stages=tuple(Stage(branches=(Branch(part=part),), **stage) for part in parts))


def one(*parts, model=Decoder, d_model=12, **more):
    fields = {
        "d_model": d_model,
        "vocab_size": 11,
        "context_length": 16,
        "layers": (block(*parts),) if parts else (),
    } | more
    return model(**fields)


def layers(*parts, **more):
    return one(layers=tuple(block(part) for part in parts), **more)


def two(encoder=(), decoder=(), source=None, target=None, **more):
    common = {"vocab_size": 11, "context_length": 16}
    return EncoderDecoder(
        d_model=12, encoder=Side(layers=(block(*encoder),) if encoder else (), **common | (source or {})),
        decoder=Side(layers=(block(*decoder),) if decoder else (), **common | (target or {})), **more,
    )  # fmt: skip


def heads(**more):
    return MultiHead(**{"n_heads": 4} | more)


def rope(**more):
    return heads(positions=RoPE(**more))


def latent(**more):
    return Latent(**{"n_heads": 2, "kv_rank": 4, "nope_dim": 3, "rope_dim": 2, "value_dim": 3} | more)


def experts(n_experts=4, n_active=2, **more):
    return MixtureOfExperts(n_experts=n_experts, n_active=n_active, expert=more.pop("expert", Dense(d_ff=4)), **more)


def table(**more):
    return TokenEmbedding(**more)


PART = "layers.0.stages.0.branches.0.part"
LENT = heads(n_kv_heads=2, mask=SlidingMask(window=4))
BORROWED = LENT.replace(share_kv=0)
FFN = Branch(part=Dense(d_ff=4), norm_in=NORM)
SECOND = "layers.1.stages.0.branches.0.part.share_kv"
DIVISORS = (1, 2, 3, 4, 6, 12)

ILLEGAL = [
    (one(heads(n_heads=5)), f"{PART}.n_heads", DIVISORS),
    (two(decoder=[Cross(n_heads=7)]), "decoder.layers.0.stages.0.branches.0.part.n_heads", DIVISORS),
    (one(heads(n_kv_heads=3)), f"{PART}.n_kv_heads", (1, 2, 4)),
    (one(heads(qk_norm=QKNorm(over="width", gain="per_head"))), f"{PART}.qk_norm.gain", ("shared",)),
    (one(rope()), f"{PART}.positions.rotary_dim", (2,)),  # a head of 3
    (one(rope(rotary_dim=3)), f"{PART}.positions.rotary_dim", (2,)),
    (one(rope(rotary_dim=4)), f"{PART}.positions.rotary_dim", (2,)),
    (one(heads(n_heads=12, positions=RoPE())), f"{PART}.positions.kind", ("none", "alibi", "t5")),
    (one(latent(rope_dim=3, positions=RoPE())), f"{PART}.positions.rotary_dim", (2,)),
    (one(latent(positions=RoPE(rotary_dim=4))), f"{PART}.positions.rotary_dim", (2,)),
    (
        one(rope(rotary_dim=2, scaling=YarnScaling(factor=2.0, original_length=8, beta_fast=1.0, beta_slow=1.0))),
        f"{PART}.positions.scaling.beta_fast", ("above 1.0",),
    ),
    (
        one(rope(rotary_dim=2, base=1.0, scaling=YarnScaling(factor=2.0, original_length=8))),
        f"{PART}.positions.base", ("above 1.0",),
    ),
    (
        one(rope(rotary_dim=2, scaling=Llama3Scaling(factor=2.0, original_length=8, low_freq_factor=4.0))),
        f"{PART}.positions.scaling.high_freq_factor", ("above 4.0",),
    ),
    (
        one(rope(rotary_dim=2, scaling=LongRopeScaling(
            short_factors=(1.0,), long_factors=(1.0, 2.0), original_length=8, factor=2.0))),
        f"{PART}.positions.scaling.long_factors", ("1 numbers, one a pair",),
    ),
    (
        one(rope(rotary_dim=2, scaling=LongRopeScaling(
            short_factors=(1.0,), long_factors=(1.0,), original_length=1, factor=2.0))),
        f"{PART}.positions.scaling.original_length", ("at least 2",),
    ),
    (one(heads(positions=T5Buckets(n_buckets=3, bidirectional=True))), f"{PART}.positions.n_buckets", ("at least 4",)),
    (one(heads(positions=T5Buckets(n_buckets=8, max_distance=4))), f"{PART}.positions.max_distance", ("at least 5",)),
    (one(Gated(d_ff=4, activation="gelu", alpha=2.0)), f"{PART}.alpha", (1.0,)),
    (one(experts(n_active=5)), f"{PART}.n_active", (1, 2, 3, 4)),
    (one(experts(router=Router(n_groups=3))), f"{PART}.router.n_groups", (1, 2, 4)),
    (one(experts(router=Router(n_groups=2, n_active_groups=3))), f"{PART}.router.n_active_groups", (1, 2)),
    (one(experts(n_active=3, router=Router(n_groups=4))), f"{PART}.router.n_active_groups", (3, 4)),
    (one(experts(n_active=3, router=Router(n_groups=2))), f"{PART}.router.n_active_groups", (2,)),
    (
        one(experts(n_active=1, router=Router(n_groups=4, group_score="top2"))), f"{PART}.router.group_score", ("max",),
    ),
    (one(experts(expert=Gated(d_ff=4, activation="relu", alpha=2.0))), f"{PART}.expert.alpha", (1.0,)),
    (
        one(experts(shared=SharedExpert(expert=Gated(d_ff=4, activation="relu", alpha=2.0)))),
        f"{PART}.shared.expert.alpha", (1.0,),
    ),
    (layers(BORROWED), f"{PART}.share_kv", ("none",)),
    (layers(LENT, heads(n_kv_heads=2), BORROWED.replace(share_kv=1)), "layers.2.stages.0.branches.0.part.share_kv",
     (0, "none")),
    (layers(LENT, BORROWED, BORROWED.replace(share_kv=1)), "layers.2.stages.0.branches.0.part.share_kv", (0, "none")),
    (layers(LENT, BORROWED.replace(n_kv_heads=4)), SECOND, ("none",)),
    (layers(LENT, BORROWED.replace(value_dim=2)), SECOND, ("none",)),
    (layers(LENT, BORROWED.replace(mask=ChunkedMask(size=4))), SECOND, ("none",)),
    (layers(LENT, BORROWED.replace(positions=spec.ALiBi())), SECOND, ("none",)),
    (layers(LENT, BORROWED.replace(share_kv=7)), SECOND, (0, "none")),
    (layers(LENT, BORROWED.replace(k_bias=True)), "layers.1.stages.0.branches.0.part.k_bias", (False,)),
    (
        layers(heads(positions=T5Buckets()), heads(n_heads=6, positions=T5Buckets())),
        "layers.1.stages.0.branches.0.part.n_heads", (4,),
    ),
    (
        layers(heads(n_heads=6, positions=T5Buckets()), heads(positions=T5Buckets())),
        "layers.1.stages.0.branches.0.part.n_heads", (6,),
    ),
    (
        layers(heads(positions=T5Buckets()), heads(positions=T5Buckets(n_buckets=16))),
        "layers.1.stages.0.branches.0.part.positions.n_buckets", (32,),
    ),
    (one(Cross(n_heads=4)), f"{PART}.kind",
     ("multi_head", "latent", "no_attn", "dense", "gated", "moe", "no_ffn")),
    (two(encoder=[NoCross()]), "encoder.layers.0.stages.0.branches.0.part.kind",
     ("multi_head", "latent", "no_attn", "dense", "gated", "moe", "no_ffn")),
    (one(heads(), Dense(d_ff=4), Dense(d_ff=4)), "layers.0.stages.2.branches.0.part.kind", ("no further branch",)),
    (one(heads(mask=PrefixMask())), f"{PART}.mask.kind", ("full", "causal", "sliding", "chunked")),
    (one(heads(mask=TwoSidedMask(half_width=1))), f"{PART}.mask.kind", ("full", "causal", "sliding", "chunked")),
    (one(latent(mask=TwoSidedMask(half_width=1))), f"{PART}.mask.kind", ("full", "causal", "sliding", "chunked")),
    (one(heads(mask=PrefixMask()), model=Encoder), f"{PART}.mask.kind",
     ("full", "causal", "sliding", "two_sided", "chunked")),
    (two(decoder=[heads(mask=PrefixMask())]), "decoder.layers.0.stages.0.branches.0.part.mask.kind",
     ("full", "causal", "sliding", "chunked")),
    (one(heads(mask=TwoSidedMask(half_width=1)), model=PrefixDecoder), f"{PART}.mask.kind",
     ("full", "causal", "prefix", "sliding", "chunked")),
    (
        one(layers=(Block(stages=(Stage(branches=(Branch(part=heads(), norm_in=NORM),), norm=NORM),)),)),
        "layers.0.stages.0.norm.kind", ("none",),
    ),
    (
        one(layers=(Block(stages=(
            Stage(branches=(Branch(part=heads(), norm_in=NORM),), residual=Add(skip="normed")),)),)),
        "layers.0.stages.0.residual.skip", ("x",),
    ),
    (one(embedding=table(width=6), head=LanguageHead(tied=False)), "embedding.projection",
     ("before_positions", "after_norm")),
    (one(embedding=table(projection_bias=True)), "embedding.projection_bias", (False,)),
    (one(d_model=9, layers=(), embedding=table(positions=Sinusoidal(frequencies="closed"))),
     "embedding.positions.frequencies", ("paper",)),
    (one(layers=(), head=LanguageHead(tied=False),
         embedding=table(width=5, projection="after_norm", positions=Sinusoidal(frequencies="closed"))),
     "embedding.positions.frequencies", ("paper",)),
    (one(embedding=table(positions=Learned(n_positions=15))), "embedding.positions.n_positions", ("at least 16",)),
    (one(context_length="unlimited", embedding=table(positions=Learned(n_positions=15))), "context_length",
     ("at most 15",)),
    (one(embedding=table(positions=Sinusoidal(counted=FromIds(pad_id=11)))), "embedding.positions.counted.pad_id",
     ("at most 10",)),
    (two(source={"embedding": table(positions=Learned(n_positions=9))}), "encoder.embedding.positions.n_positions",
     ("at least 16",)),
    (two(target={"vocab_size": 13}), "shared_embedding", (False,)),
    (two(target={"embedding": table(width=6, projection="after_norm")}, head=LanguageHead(tied=False)),
     "shared_embedding", (False,)),
    (one(head=LanguageHead(transform=Transform(width=6))), "head.tied", (False,)),
    (one(embedding=table(width=6, projection="after_norm")), "head.tied", (False,)),
    (one(head=MaskedHead()), "head.kind", ("language", "classes", "vectors")),
    (one(model=Encoder, head=LanguageHead()), "head.kind", ("masked", "classes", "vectors")),
    (one(head=VectorHead(pool="eos", eos_id=11)), "head.eos_id", ("at most 10",)),
    (one(head=ClassHead(n_classes=2, labels=("no",))), "head.labels", ("2 names or none",)),
    *((one(generation=Generation(**{name: value})), f"generation.{name}", ("at most 10",))
      for name, value in (("stop_ids", (3, 11)), ("forced_ids", (11,)), ("suppressed_ids", (12,)), ("start_id", 11),
                          ("end_forced_id", 99), ("pad_id", 11))),
    (two(source={"vocab_size": 20}, shared_embedding=False, generation=Generation(stop_ids=(15,))),
     "generation.stop_ids", ("at most 10",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("record", "path", "legal"), ILLEGAL, ids=[f"{n}-{path}" for n, (_, path, _) in enumerate(ILLEGAL)]
)
def test_an_illegal_combination_is_named_with_what_is_legal(record, path, legal):
    assert [(problem.path, problem.legal) for problem in spec.problems(record)] == [(path, legal)]
    with pytest.raises(SpecError) as caught:
        spec.check(record, "my.toml")
    assert str(caught.value).startswith(f"my.toml.{path}: ")
    assert "legal: " in str(caught.value)
    assert "\n" not in str(caught.value)


def values_of(legal):
    """What the words of a legal value stand for, where they name one."""
    match = re.fullmatch(r"(at least|at most|above) ([\d.]+)", legal) if isinstance(legal, str) else None
    if match is None:
        return [] if isinstance(legal, str) and " " in legal else [legal]
    number = float(match[2]) if "." in match[2] else int(match[2])
    return [number + (1.0 if match[1] == "above" else 0)]


@pytest.mark.parametrize(
    ("record", "path", "legal"), ILLEGAL, ids=[f"{n}-{path}" for n, (_, path, _) in enumerate(ILLEGAL)]
)
def test_each_legal_value_mends_it(record, path, legal):
    """Written at the path, no value that is called legal leaves a problem there."""
    for value in (value for word in legal for value in values_of(word)):
        data = record.plain(full=True)
        *steps, last = path.split(".")
        place = data
        for step in steps:
            place = place[int(step) if step.isdecimal() else step]
        if last == "kind":
            continue  # another kind has other fields; the override's tests switch kinds
        place[last] = [value] if last.endswith("_ids") else value
        assert path not in [problem.path for problem in spec.problems(spec.parse(data))]


@pytest.mark.parametrize(
    "record",
    [
        one(heads(mask=FullMask())),  # a decoder whose mask was removed
        one(heads(mask=spec.CausalMask()), model=Encoder),  # an encoder that sees the past alone
        one(heads(mask=ChunkedMask(size=3)), model=PrefixDecoder),
        one(layers=()),
        one(NoAttention(), NoFeedForward()),
        one(Dense(d_ff=4)),
        one(d_model=9, layers=(), embedding=table(positions=Sinusoidal(layout="halves"))),  # odd, in the paper's form
        one(
            d_model=9,
            layers=(),
            head=LanguageHead(tied=False),
            embedding=table(width=6, projection="after_norm", positions=Sinusoidal(frequencies="closed")),
        ),  # even where it is added
        one(heads(n_heads=5, head_dim=4)),
        one(heads(n_heads=5, head_dim=1, positions=spec.ALiBi())),
        one(rope(rotary_dim=2, scaling=DynamicScaling(factor=2.0, original_length=4))),
        one(embedding=table(width=12, projection="before_positions", projection_bias=True)),
        one(embedding=table(positions=Learned(n_positions=16, offset=2, counted=FromIds(pad_id=1)))),
        two(decoder=[heads()]),  # it need not look at its encoder
        two(decoder=[heads(), NoCross(), Dense(d_ff=4)], encoder=[heads(mask=TwoSidedMask(half_width=2))]),
        two(target={"vocab_size": 13}, shared_embedding=False),
        one(layers=(Repeat(times=3, blocks=(block(LENT), block(BORROWED))),)),
        one(head=ClassHead(n_classes=2, pool="none")),
    ],
)
def test_what_is_unusual_but_legal(record):
    assert spec.problems(record) == []


def test_a_problem_in_a_repeat_is_told_once_where_it_is_written():
    record = one(layers=(Repeat(times=3, blocks=(block(heads(n_heads=5)),)),))
    path = "layers.0.blocks.0.stages.0.branches.0.part.n_heads"
    assert [problem.path for problem in spec.problems(record)] == [path]


def test_many_problems_are_all_found_and_told_in_part():
    record = layers(*(heads(n_heads=5, n_kv_heads=n) for n in (2, 3, 4)))
    assert len(spec.problems(record)) == 6
    with pytest.raises(SpecError, match="; and 2 more$"):
        spec.check(record)


@settings(max_examples=60)
@given(any_spec())
def test_the_strategy_builds_legal_specs_of_its_size(record):
    assert spec.problems(record) == []
    assert 8 <= record.d_model <= 24
    for stack in spec.stacks(record).values():
        assert 1 <= len(stack.blocks) <= 5
        images = isinstance(record, spec.ImageEncoder)
        assert stack.vocab_size == 0 if images else 11 <= stack.vocab_size <= 23


def test_the_listed_specs_reach_every_kind_and_every_pair():
    records = list(random_specs(360))
    found = [kinds_in(record) for record in records]
    rare = {kind for kind in all_kinds() if sum(kind in held for held in found) < 10}
    assert rare == set()
    for pair, record in zip(legal_pairs(), records, strict=True):
        assert pair in pairs_in(record)
    assert set().union(*(pairs_in(record) for record in records)) == set(legal_pairs())


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        (Stage(branches=(Branch(part=heads()),)), "none"),
        (Stage(branches=(Branch(part=heads(), norm_in=NORM),)), "pre"),
        (Stage(branches=(Branch(part=heads()),), norm=NORM), "pre"),
        (Stage(branches=(Branch(part=heads()),), norm_sum=NORM), "post"),
        (Stage(branches=(Branch(part=heads(), norm_in=NORM, norm_out=NORM),)), "sandwich"),
        (Stage(branches=(Branch(part=heads(), norm_out=NORM),)), "output"),
        (Stage(branches=(Branch(part=heads()), Branch(part=Dense(d_ff=4))), norm=NORM), "parallel_shared"),
        (Stage(branches=(Branch(part=heads(), norm_in=NORM), FFN)), "parallel_own"),
        (Stage(branches=(Branch(part=heads(), norm_in=NORM), Branch(part=Dense(d_ff=4)))), "mixed"),
        (Stage(branches=(Branch(part=heads(), norm_in=NORM),), norm_sum=NORM), "mixed"),
    ],
)  # fmt: skip
def test_placements_have_their_names(stage, name):
    assert spec.placement(stage) == name
