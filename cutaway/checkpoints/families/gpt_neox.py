"""GPT-NeoX and Pythia: RoPE on a part of each head, attention and feed-forward in parallel (arXiv:2204.06745)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.activations import ACTIVATIONS
from cutaway.checkpoints.blocks import Stack, first_parts, first_sizes, parallel_two_norms, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.heads import classifier
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import GroupSplit, Rule

IGNORED = {
    "classifier_dropout": "training only", "attention_probs_dropout_prob": "training only",
    "hidden_dropout_prob": "training only", "gradient_checkpointing": "training only",
}  # fmt: skip


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    config.also("rope_theta", "rotary_emb_base")
    config.also("partial_rotary_factor", "rotary_pct")
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    bias = config.flag("attention_bias", True)
    attn = spec.MultiHead(
        n_heads=n_heads, positions=read_rope(config, d_model // n_heads, share=0.25), **decoders.biases(bias)
    )
    ffn = spec.Dense(d_ff=config.integer("intermediate_size"), activation=config.choice("hidden_act", ACTIVATIONS))
    norm = spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-5))
    shape = parallel_two_norms if config.flag("use_parallel_residual", True) else sequential
    blocks = [shape(attn, ffn, norm)] * config.integer("num_hidden_layers")
    record = decoders.decoder(config, blocks, norm)
    dropped = config.number("hidden_dropout", 0.0)
    return record.replace(dropout=record.dropout.replace(embedding=dropped, residual=dropped))


NAMES = {
    "embedding.tokens": "gpt_neox.embed_in", "final_norm": "gpt_neox.final_layer_norm", "head": "embed_out",
    "blocks.*.attn.norm_in": "gpt_neox.layers.*.input_layernorm",
    "blocks.*.ffn.norm_in": "gpt_neox.layers.*.post_attention_layernorm",
    **{f"blocks.*.attn.{name}_proj": "gpt_neox.layers.*.attention.query_key_value" for name in "qkv"},
    "blocks.*.attn.o_proj": "gpt_neox.layers.*.attention.dense",
    "blocks.*.ffn.up_proj": "gpt_neox.layers.*.mlp.dense_h_to_4h",
    "blocks.*.ffn.down_proj": "gpt_neox.layers.*.mlp.dense_4h_to_h",
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; q, k and v of a head stand together."""
    n = first_sizes(record)
    cut = {"gpt_neox.layers.*.attention.query_key_value": (GroupSplit(n.n_heads, (n.head_dim,) * 3),)}
    return table_rules(record, NAMES | classifier(record.head), cut, "gpt_neox.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    out = decoders.write_decoder(record, "gpt_neox", "GPTNeoX")
    del out["num_key_value_heads"], out["head_dim"]
    return out | {
        "rope_parameters": {"partial_rotary_factor": 1.0} | out["rope_parameters"],
        "attention_bias": attn.q_bias, "layer_norm_eps": decoders.eps_of(record.final_norm),
        "use_parallel_residual": len(record.blocks[0].stages) == 1, "hidden_dropout": record.dropout.residual,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, norm = gguf_decoders.read_shape(config), spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"))
    bias, rope = config.holds("blk.0.attn_qkv.bias", True), gguf_decoders.read_rope(config, shape.head_dim)
    attn = spec.MultiHead(**shape.heads, positions=rope, **decoders.biases(bias))
    ffn = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu")
    build = parallel_two_norms if config.flag("use_parallel_residual", True) else sequential
    return gguf_decoders.decoder(config, [build(attn, ffn, norm)] * shape.n_layers, norm)


GGUF = {**gguf_decoders.GGUF_NAMES, **{f"blocks.*.attn.{name}_proj": "blk.*.attn_qkv" for name in "qkv"}}

FAMILIES = (
    Family(
        ("gpt_neox",), spec.Decoder, to_spec, rules, to_config,
        ("layers.*.attention.bias", "layers.*.attention.masked_bias", "*rotary_emb.inv_freq"),
        renamed=lambda name: name.replace("lm_head.", "embed_out."),
        prefix="gpt_neox.", ignored_keys=IGNORED,
        gguf=(Gguf("gptneox", gguf_spec, lambda record: table_rules(record, GGUF)),),
    ),
)  # fmt: skip
