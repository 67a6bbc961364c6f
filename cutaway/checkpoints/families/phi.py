"""Phi: attention and feed-forward in parallel on one norm, RoPE on a part of each head (arXiv:2306.11644)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.activations import ACTIVATIONS
from cutaway.checkpoints.blocks import Stack, first_parts, parallel
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape = decoders.read_shape(config)
    norm = spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-5))
    attn = spec.MultiHead(
        **shape.heads,
        positions=read_rope(config, shape.head_dim, share=0.5),
        qk_norm=spec.QKNorm(norm=norm) if config.flag("qk_layernorm", False) else spec.NoQKNorm(),
        **decoders.biases(True),
    )
    ffn = spec.Dense(d_ff=config.integer("intermediate_size"), activation=config.choice("hidden_act", ACTIVATIONS))
    head = spec.LanguageHead(tied=False, bias=True)
    record = decoders.decoder(config, [parallel(attn, ffn, norm)] * shape.n_layers, norm, head)
    dropout = record.dropout.replace(
        embedding=config.number("embd_pdrop", 0.0), residual=config.number("resid_pdrop", 0.0)
    )
    return record.replace(dropout=dropout)


LAYER = "model.layers.*"
NAMES = {
    **USUAL, "final_norm": "model.final_layernorm", "blocks.*.attn.norm": f"{LAYER}.input_layernorm",
    "blocks.*.attn.o_proj": f"{LAYER}.self_attn.dense",
    **{f"blocks.*.attn.{name}_norm": f"{LAYER}.self_attn.{name}_layernorm" for name in "qk"},
    "blocks.*.ffn.up_proj": f"{LAYER}.mlp.fc1", "blocks.*.ffn.down_proj": f"{LAYER}.mlp.fc2",
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    out = decoders.write_decoder(record, "phi", "Phi")
    return out | {
        "rope_parameters": {"partial_rotary_factor": 1.0} | out["rope_parameters"],
        "layer_norm_eps": decoders.eps_of(record.final_norm), "qk_layernorm": isinstance(attn.qk_norm, spec.QKNorm),
        "embd_pdrop": record.dropout.embedding, "resid_pdrop": record.dropout.residual,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, norm = gguf_decoders.read_shape(config), spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"))
    rope = gguf_decoders.read_rope(config, shape.head_dim)
    attn = spec.MultiHead(**shape.heads, positions=rope, **decoders.biases(True))
    ffn = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu_tanh")
    blocks = [parallel(attn, ffn, norm)] * shape.n_layers
    return gguf_decoders.decoder(config, blocks, norm, spec.LanguageHead(bias=True))


GGUF = {**gguf_decoders.GGUF_NAMES, "blocks.*.attn.norm": "blk.*.attn_norm"}

FAMILIES = (
    Family(
        ("phi",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        gguf=(Gguf("phi2", gguf_spec, lambda record: table_rules(record, GGUF)),),
    ),
)  # fmt: skip
