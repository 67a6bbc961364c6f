"""Each part of each kind by itself: the smallest model whose output is what that part makes of the table's rows."""

from __future__ import annotations

from typing import Any

from cutaway import spec as s

WIDTH, VOCAB = 8, 13
ACTIVATIONS = ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sigmoid", "identity")
STATES = s.VectorHead(pool="none", normalise=False)
NORMS = {
    "layernorm": s.LayerNorm(eps=1e-3), "layernorm bare": s.LayerNorm(gain=False, shift=False),
    "rmsnorm": s.RMSNorm(eps=1e-3), "rmsnorm one_plus": s.RMSNorm(gain="one_plus"),
    "rmsnorm bare": s.RMSNorm(gain="none"),
}  # fmt: skip


def stack(*branches: s.Branch, **more: Any) -> dict[str, Any]:
    """Fields of a stack with one stage of these branches; without any, with none."""
    how = {"residual": s.NoResidual()} | {key: more.pop(key) for key in ("residual", "norm", "norm_sum") if key in more}
    layers = (s.Block(stages=(s.Stage(branches=branches, **how),)),) if branches else ()
    return {"vocab_size": VOCAB, "context_length": 32, "layers": layers} | more


def model(kind: type, *branches: s.Branch, **more: Any) -> s.Model:
    head, dropout = more.pop("head", STATES), more.pop("dropout", s.Dropout())
    return kind(d_model=WIDTH, head=head, dropout=dropout, **stack(*branches, **more))


def alone(part: Any, **more: Any) -> s.Model:
    """The model of the kind that the part may stand in, with this part and nothing else."""
    if isinstance(part, s.Cross):
        sides = {"encoder": s.Side(**stack()), "decoder": s.Side(**stack(s.Branch(part=part)))}
        return s.EncoderDecoder(d_model=WIDTH, head=STATES, **sides, **more)
    mask = part.mask.kind if isinstance(part, (s.MultiHead, s.Latent)) else "causal"
    kind = {"full": s.Encoder, "two_sided": s.Encoder, "prefix": s.PrefixDecoder}.get(mask, s.Decoder)
    if isinstance(part, (s.NoAttention, s.NoFeedForward)):  # of 0 alone there is nothing to see
        more["residual"] = s.Add()
    return model(kind, s.Branch(part=part), **more)


def heads(**fields: Any) -> s.MultiHead:
    return s.MultiHead(**({"n_heads": 4, "n_kv_heads": 2, "head_dim": 4} | fields))


def rope(**fields: Any) -> s.MultiHead:
    return heads(positions=s.RoPE(base=100.0, **fields))


def latent(**fields: Any) -> s.Latent:
    return s.Latent(**({"n_heads": 2, "kv_rank": 5, "nope_dim": 3, "rope_dim": 2, "value_dim": 4} | fields))


def experts(expert: Any = s.Gated(d_ff=5), shared: Any = s.NoSharedExpert(), n_active: int = 2, **rule: Any) -> Any:
    return s.MixtureOfExperts(
        n_experts=4, n_active=n_active, expert=expert, router=s.Router(**rule), shared=shared, load_balance=0.1
    )  # fmt: skip


BIASES = {"q_bias": True, "k_bias": True, "v_bias": True, "o_bias": True}
SCALINGS = {
    "linear": s.LinearScaling(factor=3.0), "dynamic": s.DynamicScaling(factor=4.0, original_length=4),
    "yarn": s.YarnScaling(factor=4.0, original_length=8, beta_fast=4.0, beta_slow=0.5),
    "yarn mscale": s.YarnScaling(factor=4.0, original_length=8, mscale=0.7, mscale_all_dim=0.4, truncate=False),
    "llama3": s.Llama3Scaling(factor=4.0, original_length=8),
    "longrope": s.LongRopeScaling(short_factors=(1.0, 1.5), long_factors=(2.0, 3.0), original_length=4, factor=4.0),
}  # fmt: skip
MASKS = {
    "full": s.FullMask(), "causal": s.CausalMask(), "prefix": s.PrefixMask(), "sliding": s.SlidingMask(window=3),
    "two_sided": s.TwoSidedMask(half_width=1), "chunked": s.ChunkedMask(size=3),
}  # fmt: skip
PLACES = {
    "rope halves": s.RoPE(layout="halves"), "rope partial": s.RoPE(rotary_dim=2), "alibi": s.ALiBi(factor=0.5),
    "alibi bfloat16": s.ALiBi(bfloat16=True), "t5": s.T5Buckets(n_buckets=6, max_distance=5),
}  # fmt: skip
ATTENTIONS = {
    **{f"mask {name}": heads(mask=mask) for name, mask in MASKS.items()},
    **{f"rope {name}": rope(scaling=scaling) for name, scaling in SCALINGS.items()},
    **{name: heads(positions=places) for name, places in PLACES.items()},
    "t5 both ways": heads(mask=s.FullMask(), positions=s.T5Buckets(n_buckets=8, max_distance=5, bidirectional=True)),
    "one key head": heads(n_kv_heads=1), "heads share the width": s.MultiHead(n_heads=2), "biases": heads(**BIASES),
    "values of another width": heads(value_dim=3), "own scale": heads(scale=0.7), "clip": heads(clip=0.4),
    "soft cap": heads(soft_cap=1.5), "sinks": heads(sinks=True), "gate per head": heads(output_gate="per_head"),
    "gate per element": heads(output_gate="per_element", value_dim=3),
    **{f"qk {name}": heads(qk_norm=s.QKNorm(norm=norm)) for name, norm in NORMS.items()},
    "qk over the width": heads(qk_norm=s.QKNorm(over="width")),
    "qk gain per head": heads(qk_norm=s.QKNorm(norm=s.LayerNorm(), gain="per_head")),
    "qk rms gain per head": heads(qk_norm=s.QKNorm(norm=s.RMSNorm(gain="one_plus"), gain="per_head")),
    "cross": s.Cross(n_heads=2), "cross grouped": s.Cross(n_heads=4, n_kv_heads=2, head_dim=3, value_dim=5, **BIASES),
    "cross capped": s.Cross(n_heads=2, scale=0.9, soft_cap=1.5, qk_norm=s.QKNorm()),
    "cross norm over the width": s.Cross(n_heads=2, qk_norm=s.QKNorm(norm=s.LayerNorm(), over="width")),
    "latent": latent(), "latent with q_rank": latent(q_rank=5, down_bias=True, o_bias=True, scale=0.6),
    "latent rope": latent(positions=s.RoPE(), q_norm=s.LayerNorm(), kv_norm=s.NoNorm(), mask=s.SlidingMask(window=2)),
    "latent alibi": latent(positions=s.ALiBi()), "latent t5": latent(positions=PLACES["t5"]),
    "removed": s.NoAttention(),
}  # fmt: skip
NETWORKS = {
    **{f"dense {name}": s.Dense(d_ff=6, activation=name) for name in ACTIVATIONS},
    "dense without biases": s.Dense(d_ff=6, up_bias=False, down_bias=False),
    **{f"gated {name}": s.Gated(d_ff=6, activation=name) for name in (*ACTIVATIONS, "removed")},
    "gated clamp": s.Gated(d_ff=6, clamp=0.3, alpha=1.702, up_offset=1.0, gate_bias=True, up_bias=True, down_bias=True),
    "experts softmax": experts(), "experts not normalised": experts(normalise=False, factor=2.5),
    "experts sigmoid": experts(score="sigmoid", bias=True, choice_bias=True),
    "experts softmax after": experts(s.Dense(d_ff=5), score="softmax_after", bias=True),
    "experts groups": experts(n_groups=2, n_active_groups=1, group_score="max"),
    "experts top2 groups": experts(score="sigmoid", choice_bias=True, n_groups=2, group_score="top2"),
    "experts shared": experts(shared=s.SharedExpert(expert=s.Dense(d_ff=4))),
    "experts shared gated": experts(shared=s.SharedExpert(expert=s.Gated(d_ff=4), gated=True), n_active=1),
    "no network": s.NoFeedForward(),
}  # fmt: skip
NARROW = {"width": 5, "projection_bias": True}
EMBEDDINGS = {
    "sqrt": s.TokenEmbedding(factor="sqrt_d_model", n_token_types=2),
    "projected before": s.TokenEmbedding(**NARROW, projection="before_positions", positions=s.Learned(n_positions=32)),
    "projected after": s.TokenEmbedding(**NARROW, projection="after_norm", norm=s.LayerNorm(), n_token_types=2),
    **{f"learned {c.kind}": s.TokenEmbedding(positions=s.Learned(n_positions=32, offset=2, counted=c))
       for c in (s.FromMask(), s.ByColumn(), s.FromIds(pad_id=1))},
    **{f"sinusoidal {c.kind}": s.TokenEmbedding(positions=s.Sinusoidal(layout="halves", counted=c), norm=s.RMSNorm())
       for c in (s.FromMask(), s.ByColumn(), s.FromIds(pad_id=1))},
    "sinusoidal closed": s.TokenEmbedding(positions=s.Sinusoidal(frequencies="closed")),
    "sinusoidal odd": s.TokenEmbedding(width=5, projection="after_norm", positions=s.Sinusoidal()),
}  # fmt: skip
PATCHES = {"image_height": 2, "patch_height": 2, "patch_width": 2}
IMAGES = {
    "with class token": s.PatchEmbedding(**PATCHES, image_width=10, positions=s.Learned(n_positions=7, offset=1)),
    "without": s.PatchEmbedding(
        **PATCHES, image_width=12, n_channels=1, bias=False, class_token=False, norm=s.RMSNorm(),
        positions=s.Sinusoidal(counted=s.ByColumn()),
    ),
}  # fmt: skip
TRANSFORM = s.Transform(width=6, activation="gelu", norm=s.LayerNorm())
POOLS = ("first", "mean", "last", "eos", "none")
HEADS = {
    "language": s.LanguageHead(), "language of its own": s.LanguageHead(tied=False, bias=True, input_factor=0.5),
    "language tied, capped": s.LanguageHead(input_factor="1/sqrt_d_model", soft_cap=2.0, logit_factor=0.3),
    "language transform": s.LanguageHead(tied=False, transform=TRANSFORM),
    "masked": s.MaskedHead(transform=TRANSFORM.replace(width="d_model"), bias=True),
    "masked of its own": s.MaskedHead(tied=False, logit_factor=2.0),
    **{f"classes {pool}": s.ClassHead(n_classes=3, pool=pool, eos_id=2, transform=TRANSFORM) for pool in POOLS},
    **{f"vectors {pool}": s.VectorHead(pool=pool, eos_id=2, normalise=True) for pool in POOLS},
}  # fmt: skip
RESIDUALS = {
    "added": s.Add(), "scaled": s.Add(scale=0.5), "scalar": s.Add(scale="scalar"), "channel": s.Add(scale="channel"),
    "from the norm": s.Add(skip="normed"), "none": s.NoResidual(),
}  # fmt: skip
BOTH = (s.Branch(part=heads(), norm_out=s.RMSNorm()), s.Branch(part=s.Dense(d_ff=6)))

SPECS = {
    **{f"attention, {name}": alone(part) for name, part in ATTENTIONS.items()},
    **{f"network, {name}": alone(part) for name, part in NETWORKS.items()},
    **{f"embedding, {name}": model(s.Decoder, embedding=record) for name, record in EMBEDDINGS.items()},
    **{f"images, {name}": s.ImageEncoder(d_model=WIDTH, embedding=record, layers=(), head=STATES)
       for name, record in IMAGES.items()},
    **{f"head, {name}": model(s.Encoder if head.kind == "masked" else s.Decoder, head=head)
       for name, head in HEADS.items()},
    **{f"norm, {name}": model(s.Decoder, final_norm=norm) for name, norm in NORMS.items()},
    **{f"residual, {name}": model(s.Decoder, *BOTH, residual=how, norm=s.LayerNorm(), norm_sum=s.RMSNorm())
       for name, how in RESIDUALS.items()},
    "norms of branches": model(s.Decoder, *(each.replace(norm_in=s.LayerNorm()) for each in BOTH), residual=s.Add()),
}  # fmt: skip
