"""Costs against the built modules, torch's own count of FLOPs, the real cache, and closed formulas."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cutaway import spec
from cutaway.errors import SpecError
from cutaway.generation.cache import Cache
from cutaway.models import build
from cutaway.parts.step import Given
from cutaway.spec import (
    CausalMask,
    ChunkedMask,
    FullMask,
    Gated,
    MixtureOfExperts,
    MultiHead,
    SharedExpert,
    SlidingMask,
    TwoSidedMask,
)  # fmt: skip
from cutaway.spec.costs import visible_pairs
from tests.conformance.strategies import random_specs

QUIET = {f"dropout.{name}": 0 for name in ("embedding", "attention", "residual", "hidden")}
T, S = 40, 24


def with_part(base, **parts):
    return spec.set_values(spec.preset(base), {name: part.plain() for name, part in parts.items()})


EXPERTS = MixtureOfExperts(n_experts=4, n_active=2, expert=Gated(d_ff=32), shared=SharedExpert(expert=Gated(d_ff=16)))
LATENT = spec.Latent(n_heads=4, q_rank=24, kv_rank=20, nope_dim=8, rope_dim=4, value_dim=12, positions=spec.RoPE())
MODELS = {
    **{name: spec.preset(name) for name in ("bert-tiny", "gpt2-tiny", "llama-tiny", "t5-tiny", "original-2017-tiny")},
    "untied": spec.preset("textbook-tiny"),
    "gated heads": with_part("modern-tiny", attn=MultiHead(n_heads=4, value_dim=7, output_gate="per_element")),
    "narrow": spec.set_values(
        spec.preset("modern-tiny"), {"embedding": {"width": 24, "projection": "after_norm"}, "head.tied": False}
    ),
    "latent": with_part("modern-tiny", attn=LATENT),
    "window": with_part("modern-tiny", attn=MultiHead(n_heads=4, mask=SlidingMask(window=6))),
}


def runner(record):
    """The built model as a function of (ids, cache), an encoder's source of S tokens read beforehand or within."""
    model = build(record, seed=0).eval()
    if not isinstance(record, spec.EncoderDecoder):
        return lambda ids, cache=None: model(ids, cache=cache) if cache is not None else model(ids)
    source, memory = torch.randint(0, 200, (1, S)), model.encode(torch.randint(0, 200, (1, S)))
    return lambda ids, cache=None: model(
        ids, Given(memory=memory if cache is not None else model.encode(source)), cache
    )


def flops(call):
    rows = {
        torch.ops.aten.mv: lambda w, x, **_: 2 * w[0] * w[1],
        torch.ops.aten.addmv: lambda b, w, x, **_: 2 * w[0] * w[1],
    }
    counter = FlopCounterMode(display=False, custom_mapping=rows)  # which knows no product with a vector
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        call()
    return counter.get_total_flops()


def test_weights_are_those_of_the_built_module():
    """Names and shapes alike, on specs of every kind and every legal pair."""
    for record in random_specs(360, seed=1):
        model = build(record)
        built = {name: tuple(each.shape) for name, each in [*model.named_parameters(), *model.named_buffers()]}
        assert spec.weights(record) == built
        assert spec.count(record, tokens=7).parameters == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_forward_flops_are_those_of_torch(name):
    """A plain kernel computes hidden pairs too, so the masks are taken off for the comparison."""
    record = MODELS[name]
    run, ids = runner(record), torch.randint(0, 200, (1, T))
    seen_whole = record if name == "bert-tiny" else spec.set_values(record, {"attn.mask.kind": "full"})
    cost = spec.count(seen_whole, tokens=T, source_tokens=S)
    assert cost.forward_flops * T == pytest.approx(flops(lambda: run(ids)), rel=1e-12)
    assert cost.backward_flops == 2 * cost.forward_flops


@pytest.mark.parametrize("name", [name for name in MODELS if name != "bert-tiny"])
def test_a_step_and_its_cache_cost_what_is_told(name):
    record = MODELS[name]
    run, ids = runner(record), torch.randint(0, 200, (1, T))
    stack = spec.stacks(record).get("decoder.", record)
    cache = Cache(stack.blocks, "ring")
    with torch.no_grad():
        run(ids[:, :-1], cache)
    cost = spec.count(record, tokens=T, source_tokens=S)
    assert cost.decode_flops == flops(lambda: run(ids[:, -1:], cache))
    assert cost.cache_bytes == cache.nbytes()


def test_a_full_mask_keeps_nothing_and_recomputes():
    record = spec.set_values(spec.preset("gpt2-tiny"), {"mask.kind": "full"})
    cost = spec.count(record, tokens=T)
    head = 2 * record.vocab_size * record.d_model
    assert cost.cache_bytes == cost.cache_bytes_per_token == 0
    assert cost.decode_flops - head == T * (cost.forward_flops - head)


@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-tiny", "modern-tiny", "llama-tiny", "t5-tiny"])
def test_activations_are_near_what_autograd_keeps(name):
    record = spec.set_values(spec.preset(name), QUIET)
    model, ids = build(record, seed=0), torch.randint(0, 200, (1, T))
    weights = {each.untyped_storage().data_ptr() for each in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        given = (Given(memory=model.encode(ids)),) if isinstance(record, spec.EncoderDecoder) else ()
        model(ids, *given).logsumexp(-1).sum()
    real = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert spec.count(record, tokens=T).activation_bytes == pytest.approx(real, rel=0.2)


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        (FullMask(), lambda i, j: True),
        (CausalMask(), lambda i, j: j <= i),
        (SlidingMask(window=3), lambda i, j: i - 3 < j <= i),
        (TwoSidedMask(half_width=2), lambda i, j: abs(i - j) <= 2),
        (TwoSidedMask(half_width=0), lambda i, j: i == j),
        (ChunkedMask(size=4), lambda i, j: j <= i and i // 4 == j // 4),
    ],
)
def test_visible_pairs_are_counted_one_by_one(mask, rule):
    for n in range(14):
        assert visible_pairs(mask, n) == sum(rule(i, j) for i in range(n) for j in range(n))


def test_gpt2_by_hand():
    cost = spec.count(spec.preset("gpt2"), tokens=1024, batch=3, dtype="bfloat16")
    d, n_layers, vocab = 768, 12, 50257
    matrices = n_layers * 12 * d * d + vocab * d
    assert cost.decode_flops == 2 * matrices + n_layers * 4 * 1024 * d
    assert cost.forward_flops == 2 * matrices + n_layers * 4 * 512.5 * d
    assert cost.weight_bytes == 2 * 124_439_808
    assert cost.cache_bytes_per_token == n_layers * 2 * d * 2
    assert cost.cache_bytes == 3 * 1024 * cost.cache_bytes_per_token
    assert (
        cost.read_bytes == cost.weight_bytes - 2 * (1024 - 3) * d + 2 * 3 * d
    )  # of tables 3 rows, the tied head whole


def test_windows_and_latents_in_the_cache():
    window = with_part("modern-tiny", attn=MultiHead(n_heads=4, n_kv_heads=2, mask=SlidingMask(window=6)))
    for tokens, slots in ((4, 4), (6, 6), (100, 6)):
        assert spec.count(window, tokens=tokens).cache_bytes == 2 * slots * 2 * (16 + 16) * 4
    assert spec.count(MODELS["latent"], tokens=10).cache_bytes == 2 * 10 * (20 + 4) * 4


def test_layers_that_borrow_keys_keep_none():
    own = MultiHead(n_heads=4)
    record = spec.set_values(with_part("modern-tiny", attn=own), {"blocks.1.attn.share_kv": 0})
    assert spec.count(record, tokens=10).cache_bytes == 10 * 2 * 64 * 4


def test_a_step_reads_no_weights_of_the_encoders_keys_and_values():
    cost = spec.count(spec.preset("original-2017-tiny"), tokens=T, source_tokens=S)
    cross = next(part for part in cost.parts if part.path == "decoder.blocks.1.cross")
    assert cross.weight_bytes - cross.read_bytes == 4 * 2 * 64 * 64


def test_a_pooled_head_costs_one_product_a_row():
    for pool, times in (("mean", 1), ("none", T)):
        record = spec.set_values(spec.preset("bert-tiny"), {"head": {"kind": "classes", "n_classes": 3, "pool": pool}})
        assert spec.count(record, tokens=T).parts[-1].forward_flops == 2 * 3 * 64 * times


def test_experts_are_idle_or_met():
    record = with_part("modern-tiny", ffn=EXPERTS)
    one, batch = spec.count(record, tokens=T), spec.count(record, tokens=T, batch=2)
    expert = 3 * 64 * 32
    assert one.parameters - one.active_parameters == 2 * 2 * expert
    assert one.weight_bytes - one.read_bytes == 4 * (2 * 2 * expert - 64)
    assert batch.read_bytes == batch.weight_bytes + 4 * 2 * 64  # two rows may meet all four
    plain = spec.count(with_part("modern-tiny", ffn=Gated(d_ff=32 * 2 + 16)), tokens=T)
    assert one.forward_flops - plain.forward_flops == 2 * 2 * 4 * 64  # the router's own


def test_the_parts_are_named_as_their_weights_and_sum_up():
    record = spec.preset("t5-tiny")
    cost = spec.count(record, tokens=T, source_tokens=S)
    names = {part.path for part in cost.parts}
    assert {name for name in spec.weights(record) if not name.startswith(tuple(names))} == set()
    assert {"encoder.relative_bias", "decoder.blocks.1.cross", "head"} <= names
    assert sum(part.parameters for part in cost.parts) == cost.parameters
    assert sum(part.forward_flops for part in cost.parts) == cost.forward_flops * T


def test_packed_weights_and_predicted_speed():
    record = spec.preset("llama")
    packed, wide = (spec.count(record, tokens=100, dtype=dtype) for dtype in ("q8_0", "float32"))
    assert packed.weight_bytes == wide.weight_bytes / 4 * 34 / 32
    assert packed.cache_bytes == wide.cache_bytes  # float32 beside packed weights
    seconds = (wide.read_bytes + wide.cache_bytes) / 40e9
    assert spec.predicted_tokens_per_s(wide, 40e9) == pytest.approx(1 / seconds)
    several = spec.count(record, tokens=100, batch=8)
    assert spec.predicted_tokens_per_s(several, 40e9) > 7 * spec.predicted_tokens_per_s(wide, 40e9)


def test_what_cannot_be_counted_is_refused():
    record = spec.preset("bert-tiny")
    with pytest.raises(SpecError, match="dtype: 'float8' is not one of float64, float32"):
        spec.count(record, dtype="float8")
    for name in ("tokens", "batch", "source_tokens"):
        with pytest.raises(SpecError, match=f"{name}: 0 is less than 1"):
            spec.count(record, **{name: 0})
    with pytest.raises(SpecError, match="this model writes no text"):
        spec.predicted_tokens_per_s(spec.count(record), 1e9)
