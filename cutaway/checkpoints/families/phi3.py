"""Phi-3 and Phi-4: as Llama, with q, k, v in one matrix, gate and up in another, and LongRoPE (arXiv:2404.14219)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, windowed = decoders.read_shape(config), config.nullable("sliding_window", None) is not None
    config.integer("original_max_position_embeddings", 4096)
    rope = read_rope(config, shape.head_dim, share=1.0)
    if not isinstance(rope.scaling, (spec.NoScaling, spec.LongRopeScaling)):
        raise CheckpointError(
            f"{config.where}: rope type {rope.scaling.kind} is none of this family's; only longrope is"
        )
    for key in ("attention_bias", "mlp_bias", "lm_head_bias"):
        config.expect(key, False)
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    ffn = decoders.read_gated(config)
    blocks = [
        sequential(spec.MultiHead(**shape.heads, mask=mask, positions=rope), ffn, norm)
        for mask in decoders.read_masks(config, [windowed] * shape.n_layers)
    ]
    record = decoders.decoder(config, blocks, norm)
    return record.replace(dropout=record.dropout.replace(
        embedding=config.number("embd_pdrop", 0.0), residual=config.number("resid_pdrop", 0.0)
    ))  # fmt: skip


FUSED = {f"blocks.*.attn.{name}_proj": "model.layers.*.self_attn.qkv_proj" for name in "qkv"} | {
    f"blocks.*.ffn.{name}_proj": "model.layers.*.mlp.gate_up_proj" for name in ("gate", "up")
}


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, {**USUAL, **FUSED})


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    scaling = attn.positions.scaling if isinstance(attn.positions, spec.RoPE) else None
    length = scaling.original_length if isinstance(scaling, spec.LongRopeScaling) else record.context_length
    return decoders.write_decoder(record, "phi3", "Phi3") | {
        "rms_norm_eps": decoders.eps_of(record.final_norm),
        "sliding_window": decoders.write_masks(record)["sliding_window"],
        "original_max_position_embeddings": length,
        "embd_pdrop": record.dropout.embedding, "resid_pdrop": record.dropout.residual,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; a window of 0 means none."""
    shape, window = gguf_decoders.read_shape(config), config.integer("attention.sliding_window", 0)
    mask = spec.SlidingMask(window=window) if window else spec.CausalMask()
    attn = spec.MultiHead(**shape.heads, mask=mask, positions=gguf_decoders.read_rope(config, shape.head_dim))
    norm = spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    block = sequential(attn, spec.Gated(d_ff=config.integer("feed_forward_length")), norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm)


GGUF_FUSED = {f"blocks.*.attn.{name}_proj": "blk.*.attn_qkv" for name in "qkv"} | {
    f"blocks.*.ffn.{name}_proj": "blk.*.ffn_up" for name in ("gate", "up")
}


def gguf_rules(record: Stack) -> list[Rule]:
    """Tensor names in GGUF."""
    return table_rules(record, {**gguf_decoders.GGUF_NAMES, **GGUF_FUSED})


FAMILIES = (
    Family(
        ("phi3",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        ignored_keys={"full_attn_mod": "bookkeeping", "interpolate_factor": "bookkeeping"},
        gguf=(Gguf("phi3", gguf_spec, gguf_rules),),
    ),
)  # fmt: skip
