"""Gemma and Gemma 2 in GGUF files, whose gains have the 1 added."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import gguf_decoders
from cutaway.checkpoints.blocks import Stack, sandwich, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Gguf

EMBEDDING = spec.TokenEmbedding(factor="sqrt_d_model")


def gemma_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    attn = spec.MultiHead(**shape.heads, positions=gguf_decoders.read_rope(config, shape.head_dim))
    block = sequential(attn, gguf_decoders.read_gated(config, "gelu_tanh"), norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm, embedding=EMBEDDING)


def gemma2_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; the model of 46 layers has a scale of its own."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    rope, window = gguf_decoders.read_rope(config, shape.head_dim), config.integer("attention.sliding_window", 4096)
    config.expect("rope.freq_base_swa", rope.base)
    blocks = []
    for slides in gguf_decoders.read_slides(config, shape.n_layers, 2):
        attn = spec.MultiHead(
            **shape.heads, mask=spec.SlidingMask(window=window) if slides else spec.CausalMask(), positions=rope,
            soft_cap=config.number("attn_logit_softcapping", 50.0),
            scale=(shape.d_model // shape.n_heads) ** -0.5 if shape.n_layers == 46 else "auto",
        )  # fmt: skip
        blocks.append(sandwich(attn, gguf_decoders.read_gated(config, "gelu_tanh"), norm))
    head = spec.LanguageHead(soft_cap=config.number("final_logit_softcapping", 30.0))
    return gguf_decoders.decoder(config, blocks, norm, head, EMBEDDING)


def gemma2_keys(record: Stack) -> dict[str, Any]:
    """A spec to keys of a GGUF file."""
    return gguf_decoders.full_keys(record) | gguf_decoders.write_slides(record, 2)


GEMMA = (Gguf("gemma", gemma_spec, gguf_decoders.after_rules),)
GEMMA2 = (Gguf("gemma2", gemma2_spec, gguf_decoders.after_rules, gemma2_keys),)
FAMILIES = ()
"""Their folders, and with them these files, are the families of `gemma`."""
