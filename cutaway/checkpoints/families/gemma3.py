"""Gemma 3 (text): as Gemma 2, with norms on q and k, no caps, one full layer in six, and a rotation for each kind.

(arXiv:2503.19786.) EmbeddingGemma is its encoder.
"""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, sandwich
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.families.gemma import (
    EMBEDDING,
    read_bias,
    read_cap,
    read_norm,
    read_scale,
    rules,
    write_scalars,
    written,
)
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.rope_config import read_ropes
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> Stack:
    """config.json to a spec. Where attention runs both ways, a sliding layer sees half its window on each side."""
    shape, norm, both = (
        decoders.read_shape(config),
        read_norm(config),
        bool(config.take("use_bidirectional_attention", False)),
    )
    full, local = read_ropes(config, shape.head_dim, "rope_local_base_freq", (1000000.0, 10000.0))
    scale, bias = read_scale(config, shape.head_dim), read_bias(config)
    config.expect("attn_logit_softcapping", None)
    ffn = decoders.read_gated(config, activation="hidden_activation")
    pattern = config.integer("sliding_window_pattern|_sliding_window_pattern", 6)
    config.expect("_sliding_window_pattern", pattern, None)
    slides = decoders.read_slides(config, shape.n_layers, lambda i: (i + 1) % pattern != 0)
    blocks = [
        sandwich(
            spec.MultiHead(
                **shape.heads, **bias, mask=_both_ways(mask) if both else mask, positions=local if slide else full,
                scale=scale, qk_norm=spec.QKNorm(norm=norm),
            ),
            ffn, norm,
        )
        for mask, slide in zip(decoders.read_masks(config, slides), slides, strict=True)
    ]  # fmt: skip
    head = spec.LanguageHead(soft_cap=read_cap(config, "final_logit_softcapping", None))
    record = decoders.decoder(config, blocks, norm, head, EMBEDDING)
    if not both:
        return record
    if isinstance(record.head, spec.LanguageHead):
        raise CheckpointError(f"{config.where}: attention that runs both ways cannot continue a text")
    return spec.Encoder(**{name: value for name, value in record if name != "kind"})


def _both_ways(mask: spec.CausalMask | spec.SlidingMask) -> spec.FullMask | spec.TwoSidedMask:
    return spec.TwoSidedMask(half_width=mask.window // 2) if isinstance(mask, spec.SlidingMask) else spec.FullMask()


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    stem = "Gemma3" if isinstance(record.head, spec.LanguageHead) else "Gemma3Text"
    masks = decoders.write_masks(record, record.context_length) | {
        "use_bidirectional_attention": isinstance(record, spec.Encoder)
    }
    return written(record, "gemma3_text", stem) | masks | decoders.write_ropes(record) | write_scalars(record)


def gguf_spec(config: Config) -> Stack:
    """Keys of a GGUF file, whose gains have the 1 added, to a spec; the model of 62 layers has a scale of its own."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    full, window = gguf_decoders.read_rope(config, shape.head_dim), config.integer("attention.sliding_window", 0)
    local = spec.RoPE(base=config.number("rope.freq_base_swa", 10000.0), layout="halves")
    ffn = spec.Gated(d_ff=config.integer("feed_forward_length"), activation="gelu_tanh")
    blocks = []
    for slides in gguf_decoders.read_slides(config, shape.n_layers, 6):
        near = slides and window > 0
        attn = spec.MultiHead(
            **shape.heads, mask=spec.SlidingMask(window=window) if near else spec.CausalMask(),
            positions=local if near else full, qk_norm=spec.QKNorm(norm=norm),
            scale=(shape.d_model // shape.n_heads) ** -0.5 if shape.n_layers == 62 else "auto",
        )  # fmt: skip
        blocks.append(sandwich(attn, ffn, norm))
    cap = config.number("final_logit_softcapping", 0.0)
    return gguf_decoders.decoder(config, blocks, norm, spec.LanguageHead(soft_cap=cap or "none"), EMBEDDING)


def gguf_keys(record: Stack) -> dict[str, Any]:
    """A spec to keys of a GGUF file."""
    return gguf_decoders.full_keys(record) | gguf_decoders.write_slides(record, 6)


FAMILIES = (
    Family(
        ("gemma3_text",), (spec.Decoder, spec.Encoder), to_spec, rules, to_config, ("*rotary_emb.inv_freq",),
        prefix="model.", ignored_keys={"hidden_act": "hidden_activation is what counts"},
        gguf=(Gguf("gemma3", gguf_spec, gguf_decoders.after_rules, gguf_keys),),
    ),
)  # fmt: skip
