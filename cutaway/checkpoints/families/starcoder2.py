"""StarCoder2: grouped queries, RoPE, a sliding window, LayerNorm and biases everywhere (arXiv:2402.19173)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.activations import ACTIVATIONS
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, bias = decoders.read_shape(config), config.flag("use_bias", True)
    config.expect("norm_type", "layer_norm")
    config.expect("mlp_type", "default")
    norm = spec.LayerNorm(eps=config.number("norm_epsilon", 1e-5))
    slides = config.nullable("sliding_window", None) is not None
    attn = spec.MultiHead(
        **shape.heads,
        mask=decoders.read_masks(config, [slides])[0],
        positions=read_rope(config, shape.head_dim),
        **decoders.biases(bias),
    )
    ffn = spec.Dense(
        d_ff=config.integer("intermediate_size"), activation=config.choice("hidden_act", ACTIVATIONS),
        up_bias=bias, down_bias=bias,
    )  # fmt: skip
    blocks = [sequential(attn, ffn, norm)] * shape.n_layers
    record = decoders.decoder(config, blocks, norm, spec.LanguageHead(tied=True))
    dropout = record.dropout.replace(
        embedding=config.number("embedding_dropout", 0.0), residual=config.number("residual_dropout", 0.0)
    )
    return record.replace(dropout=dropout)


NAMES = {
    **USUAL,
    "blocks.*.ffn.up_proj": "model.layers.*.mlp.c_fc",
    "blocks.*.ffn.down_proj": "model.layers.*.mlp.c_proj",
}


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    return decoders.write_decoder(record, "starcoder2", "Starcoder2") | {
        "norm_epsilon": decoders.eps_of(record.final_norm), "use_bias": attn.q_bias,
        "sliding_window": attn.mask.window if isinstance(attn.mask, spec.SlidingMask) else None,
        "embedding_dropout": record.dropout.embedding, "residual_dropout": record.dropout.residual,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; whether there are biases is seen by its tensors."""
    shape, norm = gguf_decoders.read_shape(config), spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"))
    bias, rope = config.holds("blk.0.attn_q.bias", True), gguf_decoders.read_rope(config, shape.head_dim)
    attn = spec.MultiHead(**shape.heads, positions=rope, **decoders.biases(bias))
    d_ff = config.integer("feed_forward_length")
    ffn = spec.Dense(d_ff=d_ff, activation="gelu_tanh", up_bias=bias, down_bias=bias)
    return gguf_decoders.decoder(config, [sequential(attn, ffn, norm)] * shape.n_layers, norm)


FAMILIES = (
    Family(
        ("starcoder2",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        gguf=(Gguf("starcoder2", gguf_spec, gguf_decoders.usual_rules),),
    ),
)  # fmt: skip
