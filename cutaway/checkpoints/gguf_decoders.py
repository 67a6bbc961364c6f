"""What the keys and names of decoders in GGUF files have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from cutaway import spec
from cutaway.checkpoints.blocks import Stack, first_sizes, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import AllBiases, Shape
from cutaway.checkpoints.gguf_keys import rope_keys, standard_keys
from cutaway.checkpoints.names import Names, table_rules
from cutaway.checkpoints.rules import Op, PairRows, Rule
from cutaway.errors import CheckpointError
from cutaway.spec.feedforward import Activation
from cutaway.spec.norms import Norm
from cutaway.spec.positions import RopeScaling

GGUF_NAMES: Names = {
    "embedding.tokens": "token_embd",
    "final_norm": "output_norm",
    "head": "output",
    "blocks.*.attn.norm_in": "blk.*.attn_norm",
    "blocks.*.ffn.norm_in": "blk.*.ffn_norm",
    **{f"blocks.*.attn.{name}_proj": f"blk.*.attn_{name}" for name in ("q", "k", "v")},
    "blocks.*.attn.o_proj": "blk.*.attn_output",
    **{f"blocks.*.attn.{name}_norm": f"blk.*.attn_{name}_norm" for name in ("q", "k")},
    **{f"blocks.*.ffn.{name}_proj": f"blk.*.ffn_{name}" for name in ("gate", "up", "down")},
}


AFTER: Names = {
    **GGUF_NAMES,
    "blocks.*.attn.norm_out": "blk.*.post_attention_norm",
    "blocks.*.ffn.norm_out": "blk.*.post_ffw_norm",
}
"""With norms after the branches too."""


def read_shape(config: Config) -> Shape:
    """Widths and counts."""
    d_model, n_heads = config.integer("embedding_length"), config.integer("attention.head_count")
    head_dim = config.integer("attention.key_length", d_model // n_heads)
    config.expect("attention.value_length", head_dim)
    n_kv_heads = config.integer("attention.head_count_kv", n_heads)
    return Shape(d_model, config.integer("block_count"), n_heads, n_kv_heads, head_dim)


def read_biases(config: Config) -> AllBiases:
    """The biases of an attention: a file says them by having the tensors."""
    q, k, v, o = (config.holds(f"blk.0.attn_{name}.bias", False) for name in ("q", "k", "v", "output"))
    return {"q_bias": q, "k_bias": k, "v_bias": v, "o_bias": o}


def read_gated(config: Config, activation: Activation = "silu") -> spec.Gated:
    """The gated feed-forward network."""
    gate, up, down = (config.holds(f"blk.0.ffn_{name}.bias", False) for name in ("gate", "up", "down"))
    d_ff = config.integer("feed_forward_length")
    return spec.Gated(d_ff=d_ff, activation=activation, gate_bias=gate, up_bias=up, down_bias=down)


def usual_rules(record: Stack) -> list[Rule]:
    """Tensor names where all are usual."""
    return table_rules(record, GGUF_NAMES)


def after_rules(record: Stack) -> list[Rule]:
    """The same with norms after the branches too."""
    return table_rules(record, AFTER)


def paired(record: Stack) -> dict[str, tuple[Op, ...]]:
    """What q and k go through where their rows stand in neighbouring pairs, while the folder's stand in halves."""
    n = first_sizes(record)
    return {"blocks.*.attn.q_proj": (PairRows(n.n_heads),), "blocks.*.attn.k_proj": (PairRows(n.n_kv_heads),)}


def paired_rules(record: Stack) -> list[Rule]:
    """Tensor names of such files."""
    return table_rules(record, GGUF_NAMES, paired(record))


def read_rope(config: Config, head_dim: int, layout: Literal["halves", "interleaved"] = "halves") -> spec.RoPE:
    """The rotation; divisors of the frequencies may lie in the file as tensors."""
    turned = config.integer("rope.dimension_count", head_dim)
    return spec.RoPE(
        base=config.number("rope.freq_base", 10000.0),
        rotary_dim="head" if turned == head_dim else turned,
        layout=layout,
        scaling=_scaling(config),
    )


def _scaling(config: Config) -> RopeScaling:
    """llama.cpp multiplies cos and sin by `attn_factor`, and with YaRN by 0.1 ln(factor) + 1 as well.

    A factor without a type is linear.
    """
    kind = config.take("rope.scaling.type", "linear" if config.has("rope.scaling.factor") else "none")
    length = config.integer("context_length")
    original = config.integer("rope.scaling.original_context_length", length)
    attention = config.number("rope.scaling.attn_factor", 1.0)
    if kind == "none" and config.has("rope_freqs"):
        return _divided(config.take("rope_freqs"), config.take("rope_freqs"), length, attention)
    if kind in ("none", "longrope") and config.has("rope_factors_long"):
        return _divided(config.take("rope_factors_short"), config.take("rope_factors_long"), original, attention)
    if kind == "none" and attention == 1.0:
        config.take("rope.scaling.factor", None)
        return spec.NoScaling()
    if kind == "linear" and attention == 1.0:
        return spec.LinearScaling(factor=config.number("rope.scaling.factor"))
    if kind == "yarn":
        factor = config.number("rope.scaling.factor")
        return spec.YarnScaling(
            factor=factor, original_length=original,
            attention_factor="auto" if attention == 1.0 else attention * (0.1 * math.log(factor) + 1),
            beta_fast=config.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=config.number("rope.scaling.yarn_beta_slow", 1.0),
        )  # fmt: skip
    raise CheckpointError(
        f"{config.where}: rope.scaling.type {kind!r} cannot be read with the keys beside it; known are none, linear, "
        "yarn, and longrope with the tensors rope_factors_short and rope_factors_long"
    )


def _divided(short: list[float], long: list[float], length: int, attention: float) -> spec.LongRopeScaling:
    return spec.LongRopeScaling(
        short_factors=tuple(short), long_factors=tuple(long), original_length=length, factor=1.0,
        attention_factor=attention,
    )  # fmt: skip


def read_slides(config: Config, n_layers: int, period: int) -> list[bool]:
    """Whether each layer slides: all but the last of each period, or as a list in the file says."""
    pattern = config.take("attention.sliding_window_pattern", period)
    if isinstance(pattern, int):
        return [pattern == 0 or i % pattern < pattern - 1 for i in range(n_layers)]
    if len(pattern) != n_layers:
        raise CheckpointError(
            f"{config.where}: attention.sliding_window_pattern has {len(pattern)} of {n_layers} layers"
        )
    return [bool(flag) for flag in pattern]


def write_slides(record: Stack, period: int) -> dict[str, Any]:
    """`attention.sliding_window_pattern`, where it is not the architecture's own period."""
    slides = [isinstance(attn.mask, spec.SlidingMask) for attn in spec.attentions(record.blocks)]
    if slides == [i % period < period - 1 for i in range(len(slides))]:
        return {}
    return {"attention.sliding_window_pattern": slides}


def full_keys(record: Stack) -> dict[str, Any]:
    """The usual keys, where the rotation that they tell is that of the layers without a window."""
    keys = standard_keys(record)
    for attn in spec.attentions(record.blocks):
        if isinstance(attn.mask, spec.CausalMask) and isinstance(attn.positions, spec.RoPE):
            keys |= rope_keys(attn.positions, keys["attention.key_length"])
    return keys


def decoder(
    config: Config,
    blocks: Sequence[spec.Block],
    final_norm: Norm,
    head: spec.LanguageHead = spec.LanguageHead(),
    embedding: spec.TokenEmbedding = spec.TokenEmbedding(),
) -> spec.Decoder:
    """The whole model; its head is tied where the file has no matrix of its own for it."""
    rows = config.take("n_embedding_rows", None)
    if rows is None:
        raise CheckpointError(f"{config.where}: token_embd.weight is missing; the file holds no embedding")
    config.take("vocab_size", rows)
    return spec.Decoder(
        d_model=config.integer("embedding_length"),
        vocab_size=int(rows),
        context_length=config.integer("context_length"),
        embedding=embedding,
        layers=repeated(blocks),
        final_norm=final_norm,
        head=head.replace(tied=config.flag("tied")),
    )
