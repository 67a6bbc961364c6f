"""Llama and what is shaped like it: pre-norm RMSNorm, RoPE in halves, SwiGLU (arXiv:2302.13971)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders, gguf_mixture
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, bias = decoders.read_shape(config), config.flag("attention_bias", False)
    config.expect("rope_interleaved", False)
    attn = spec.MultiHead(**shape.heads, positions=read_rope(config, shape.head_dim), **decoders.biases(bias))
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    block = sequential(attn, decoders.read_gated(config, bias=config.flag("mlp_bias", False)), norm)
    return decoders.decoder(config, [block] * shape.n_layers, norm)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    return decoders.write_decoder(record, "llama", "Llama") | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias, "mlp_bias": ffn.up_bias,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, bias = gguf_decoders.read_shape(config), gguf_decoders.read_biases(config)
    attn = spec.MultiHead(**shape.heads, **bias, positions=gguf_decoders.read_rope(config, shape.head_dim))
    norm = spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    gated = gguf_decoders.read_gated(config)
    ffn = gguf_mixture.read_mixture(config, gated) if config.integer("expert_count", 0) else gated
    block = sequential(attn, ffn, norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm)


def gguf_rules(record: Stack) -> list[Rule]:
    """Tensor names in GGUF; rows of q and k stand there in neighbouring pairs."""
    return gguf_mixture.mixture_rules(record, ops=gguf_decoders.paired(record))


FAMILIES = (
    Family(
        ("llama",), spec.Decoder, to_spec, usual_rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        ignored_keys={"is_llama_config": "bookkeeping"},
        gguf=(Gguf("llama", gguf_spec, gguf_rules, gguf_mixture.mixture_keys),),
    ),
)  # fmt: skip
