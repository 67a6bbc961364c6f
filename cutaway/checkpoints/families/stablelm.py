"""StableLM: Llama's shape with LayerNorm, RoPE on a part of each head, some in parallel (arXiv:2402.17834)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_parts, first_sizes, parallel, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Reshape, Rule


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    config.expect("rotary_scaling_factor", 1.0)
    config.also("partial_rotary_factor", "rope_pct")
    shape, eps = decoders.read_shape(config), config.number("layer_norm_eps", 1e-5)
    per_head = spec.QKNorm(norm=spec.LayerNorm(eps=eps, shift=False), gain="per_head")
    attn = spec.MultiHead(
        **shape.heads,
        positions=read_rope(config, shape.head_dim, share=0.25),
        qk_norm=per_head if config.flag("qk_layernorm", False) else spec.NoQKNorm(),
        **decoders.biases_before(config.flag("use_qkv_bias", False)),
    )
    ffn, norm = decoders.read_gated(config), spec.LayerNorm(eps=eps)
    build = parallel if config.flag("use_parallel_residual", False) else sequential
    record = decoders.decoder(config, [build(attn, ffn, norm)] * shape.n_layers, norm)
    return record.replace(dropout=record.dropout.replace(residual=config.number("hidden_dropout", 0.0)))


NAMES = {
    **USUAL, "blocks.*.attn.norm": "model.layers.*.input_layernorm",
    **{f"blocks.*.attn.{name}_norm": f"model.layers.*.self_attn.{name}_layernorm.norms.*" for name in "qk"},
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; the norm of each head is a tensor of its own."""
    return table_rules(record, NAMES, _stacked(record))


def _stacked(record: Stack) -> dict[str, tuple[Reshape, ...]]:
    """The norms of all heads, a row each."""
    n = first_sizes(record)
    heads = {"q": n.n_heads, "k": n.n_kv_heads}
    return {
        f"blocks.*.attn.{name}_norm": (Reshape((count, n.head_dim), (count, 1, n.head_dim)),)
        for name, count in heads.items()
    }


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    out = decoders.write_decoder(record, "stablelm", "StableLm")
    return out | {
        "rope_parameters": {"partial_rotary_factor": 1.0} | out["rope_parameters"],
        "layer_norm_eps": decoders.eps_of(record.final_norm), "use_qkv_bias": attn.q_bias,
        "qk_layernorm": isinstance(attn.qk_norm, spec.QKNorm), "hidden_dropout": record.dropout.residual,
        "use_parallel_residual": len(record.blocks[0].stages) == 1,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; biases and the norms of heads are seen by its tensors."""
    shape, eps = gguf_decoders.read_shape(config), config.number("attention.layer_norm_epsilon")
    per_head = spec.QKNorm(norm=spec.LayerNorm(eps=eps, shift=False), gain="per_head")
    attn = spec.MultiHead(
        **shape.heads,
        positions=gguf_decoders.read_rope(config, shape.head_dim),
        qk_norm=per_head if config.holds("blk.0.attn_q_norm.weight", False) else spec.NoQKNorm(),
        **decoders.biases_before(config.holds("blk.0.attn_q.bias", False)),
    )
    ffn, norm = spec.Gated(d_ff=config.integer("feed_forward_length")), spec.LayerNorm(eps=eps)
    build = parallel if config.flag("use_parallel_residual", False) else sequential
    return gguf_decoders.decoder(config, [build(attn, ffn, norm)] * shape.n_layers, norm)


GGUF = {**gguf_decoders.GGUF_NAMES, "blocks.*.attn.norm": "blk.*.attn_norm"}

FAMILIES = (
    Family(
        ("stablelm",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        gguf=(Gguf("stablelm", gguf_spec, lambda r: table_rules(r, GGUF, _stacked(r))),),
    ),
)  # fmt: skip
