"""Seed-OSS: as Llama, with biases on q, k and v apart from the one on o, and dropout of its own."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps"))
    attn = spec.MultiHead(
        **shape.heads, **decoders.biases_before(config.flag("attention_bias", True)),
        o_bias=config.flag("attention_out_bias", False), positions=read_rope(config, shape.head_dim),
    )  # fmt: skip
    block = sequential(attn, decoders.read_gated(config, config.flag("mlp_bias", False)), norm)
    dropout = spec.Dropout(
        attention=config.number("attention_dropout", 0.1), residual=config.number("residual_dropout", 0.1)
    )
    return decoders.decoder(config, [block] * shape.n_layers, norm).replace(dropout=dropout)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    return decoders.write_decoder(record, "seed_oss", "SeedOss") | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "attention_out_bias": attn.o_bias, "mlp_bias": ffn.up_bias, "residual_dropout": record.dropout.residual,
    }  # fmt: skip


LEFT = ("*rotary_emb.inv_freq",)
FAMILIES = (Family(("seed_oss",), spec.Decoder, to_spec, usual_rules, to_config, LEFT, prefix="model."),)
