"""The keys under which GGUF files describe a model, read off a spec.

The names are those of the `gguf` package. A family reads the keys (`Gguf.to_spec`); of these here its files get those
that its reading takes, where the same spec comes back from them.
"""

from __future__ import annotations

import math
from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack
from cutaway.spec.block import Part
from cutaway.spec.head import Head
from cutaway.spec.norms import Norm

FACTORS = {
    "rope_freqs": "rope_freqs.weight",
    "rope_factors_short": "rope_factors_short.weight",
    "rope_factors_long": "rope_factors_long.weight",
}
"""Divisors of the rotary frequencies lie in the file as tensors; a Config has them as keys of these names."""

DERIVED = ("tied", "n_embedding_rows")
"""Keys that are no fields of a file: what a reader sees of its tensors."""


def standard_keys(record: Stack) -> dict[str, Any]:
    """Everything that a stack's spec says and GGUF has a key for, without the architecture's prefix."""
    keys: dict[str, Any] = {
        "block_count": len(record.blocks), "context_length": record.context_length,
        "embedding_length": record.d_model, "vocab_size": record.vocab_size,
        "n_embedding_rows": record.vocab_size,
    }  # fmt: skip
    keys |= _embedding(record.embedding) | _head(record.head) | _norm(record.final_norm)
    for block in reversed(record.blocks):  # of layers that differ the first speaks
        keys["use_parallel_residual"] = len(block.stages) == 1
        for stage in block.stages:
            for norm in (stage.norm, stage.norm_sum, *(branch.norm_in for branch in stage.branches)):
                keys |= _norm(norm)
            keys |= _residual(stage)
            for branch in stage.branches:
                keys |= _part(branch.part, record.d_model)
    return keys


def _embedding(record: spec.TokenEmbedding) -> dict[str, Any]:
    factor = record.factor
    keys: dict[str, Any] = {"embedding_scale": factor} if isinstance(factor, float) and factor != 1.0 else {}
    if record.n_token_types:
        keys["tokenizer.ggml.token_type_count"] = record.n_token_types
    return keys


def _head(record: Head) -> dict[str, Any]:
    match record:
        case spec.LanguageHead() as head:
            keys: dict[str, Any] = {"tied": head.tied}
            if head.soft_cap != "none":
                keys["final_logit_softcapping"] = head.soft_cap
            return keys | ({"logit_scale": head.logit_factor} if head.logit_factor != 1.0 else {})
        case spec.VectorHead() as head:
            return {"tied": True, "pooling_type": {"none": 0, "mean": 1, "first": 2, "last": 3}.get(head.pool)}
    return {"tied": True}


def _norm(norm: Norm) -> dict[str, Any]:
    match norm:
        case spec.RMSNorm():
            return {"attention.layer_norm_rms_epsilon": norm.eps}
        case spec.LayerNorm():
            return {"attention.layer_norm_epsilon": norm.eps}
    return {}


def _residual(stage: spec.Stage) -> dict[str, Any]:
    return {"residual_scale": stage.scale} if isinstance(stage.scale, float) and stage.scale != 1.0 else {}


def _part(part: Part, d_model: int) -> dict[str, Any]:
    match part:
        case spec.MultiHead():
            return _attention(part, d_model)
        case spec.Dense() | spec.Gated():
            return {"feed_forward_length": part.d_ff}
        case spec.MixtureOfExperts():
            keys: dict[str, Any] = {
                "expert_count": part.n_experts, "expert_used_count": part.n_active,
                "expert_feed_forward_length": part.expert.d_ff, "expert_weights_norm": part.router.normalise,
            }  # fmt: skip
            if part.router.factor != 1.0:
                keys["expert_weights_scale"] = part.router.factor
            if isinstance(part.shared, spec.SharedExpert):
                keys["expert_shared_feed_forward_length"] = part.shared.expert.d_ff
            return keys
    return {}


def _attention(part: spec.MultiHead, d_model: int) -> dict[str, Any]:
    n = spec.sizes(part, d_model)
    keys: dict[str, Any] = {
        "attention.head_count": n.n_heads, "attention.head_count_kv": n.n_kv_heads,
        "attention.key_length": n.head_dim, "attention.value_length": n.value_dim,
    }  # fmt: skip
    if part.soft_cap != "none":
        keys["attn_logit_softcapping"] = part.soft_cap
    if part.scale != "auto":
        keys["attention.scale"] = n.scale
    if part.clip != "none":
        keys["attention.clamp_kqv"] = part.clip
    swa = ""
    match part.mask:
        case spec.SlidingMask():
            keys["attention.sliding_window"], swa = part.mask.window, "_swa"
        case spec.FullMask():
            keys["attention.causal"] = False
    match part.positions:
        case spec.RoPE():
            own = rope_keys(part.positions, n.head_dim)
            keys |= own | ({f"rope.freq_base{swa}": own["rope.freq_base"]} if swa else {})
        case spec.ALiBi():
            keys["attention.max_alibi_bias"] = part.positions.max_bias
    return keys


def rope_keys(record: spec.RoPE, head_dim: int) -> dict[str, Any]:
    """The rotary keys; divisors of the frequencies come under the names of FACTORS."""
    turned = spec.rotary_dim(record, head_dim)
    keys: dict[str, Any] = {"rope.freq_base": record.base, "rope.dimension_count": turned}
    match record.scaling:
        case spec.LinearScaling() as scaling:
            keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
        case spec.YarnScaling() as scaling:
            keys |= {
                "rope.scaling.type": "yarn", "rope.scaling.factor": scaling.factor,
                "rope.scaling.original_context_length": scaling.original_length,
                "rope.scaling.yarn_beta_fast": scaling.beta_fast, "rope.scaling.yarn_beta_slow": scaling.beta_slow,
            }  # fmt: skip
            beside = spec.attention_factor(scaling) / spec.yarn_mscale(scaling.factor, 1.0)
            if not math.isclose(beside, 1.0, rel_tol=1e-9):
                keys["rope.scaling.attn_factor"] = beside
        case spec.LongRopeScaling() as scaling if _is_one_list(scaling):
            keys["rope_freqs"] = list(scaling.short_factors)
        case spec.LongRopeScaling() as scaling:
            keys |= {
                "rope.scaling.type": "longrope",
                "rope.scaling.original_context_length": scaling.original_length,
                "rope_factors_short": list(scaling.short_factors),
                "rope_factors_long": list(scaling.long_factors),
            }
            keys["rope.scaling.attn_factor"] = spec.attention_factor(scaling)
    return keys


def _is_one_list(scaling: spec.LongRopeScaling) -> bool:
    return scaling.short_factors == scaling.long_factors and spec.attention_factor(scaling) == 1.0
