"""Falcon: parallel blocks, one or a few key heads, RoPE or ALiBi; an old and a new architecture (arXiv:2311.16867)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import Build, Stack, first_parts, parallel, parallel_two_norms, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.heads import classifier, read_head, write_head
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope, write_rope
from cutaway.checkpoints.rules import GroupSplit, Rule
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    config.also("hidden_size", "n_embed")
    config.assume("max_position_embeddings", 2048)
    config.expect("apply_residual_connection_post_layernorm", False)
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    bias, head_dim = config.flag("bias", False), d_model // n_heads
    shape, n_kv_heads = _architecture(config, n_heads)
    alibi = config.flag("alibi", False)
    attn = spec.MultiHead(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        positions=spec.ALiBi(factor=head_dim**-0.5, bfloat16=True) if alibi else read_rope(config, head_dim),
        **decoders.biases(bias),
    )
    if alibi:
        config.ignore({"rope_*": "the model has ALiBi"})
    d_ff = config.nullable("ffn_hidden_size", None)
    ffn = spec.Dense(
        d_ff=4 * d_model if d_ff is None else config.integer("ffn_hidden_size"),
        activation=config.choice("activation", ACTIVATIONS, "gelu"),
        up_bias=bias, down_bias=bias,
    )  # fmt: skip
    norm = spec.LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    return spec.Decoder(
        d_model=d_model,
        vocab_size=config.integer("vocab_size"),
        context_length=config.integer("max_position_embeddings"),
        layers=repeated([shape(attn, ffn, norm)] * config.integer("num_hidden_layers")),
        final_norm=norm,
        head=read_head(config, spec.LanguageHead(tied=config.flag("tie_word_embeddings", True))),
        dropout=spec.Dropout(
            residual=config.number("hidden_dropout", 0.0), attention=config.number("attention_dropout", 0.0)
        ),
    )


def _architecture(config: Config, n_heads: int) -> tuple[Build, int]:
    """The shape of a block and the number of key heads."""
    new, side_by_side = config.flag("new_decoder_architecture", False), config.flag("parallel_attn", True)
    n_norms, given = config.nullable("num_ln_in_parallel_attn", None), config.nullable("num_kv_heads", None)
    one_key_head = config.flag("multi_query", True)
    if new and side_by_side and n_norms in (None, 1, 2):
        return parallel if n_norms == 1 else parallel_two_norms, n_heads if given is None else given
    if new or (side_by_side and n_norms not in (None, 1)):
        raise CheckpointError(
            f"{config.where}: new_decoder_architecture {new}, parallel_attn {side_by_side} and num_ln_in_parallel_attn "
            f"{n_norms} describe no block; the new architecture is parallel with 1 or 2 norms, the old one has 1"
        )
    if not one_key_head and given not in (None, n_heads):
        raise CheckpointError(
            f"{config.where}: num_kv_heads is {given}; without new_decoder_architecture there are 1 or {n_heads}"
        )
    return parallel if side_by_side else sequential, 1 if one_key_head else n_heads


LAYER = "transformer.h.*"
NAMES = {
    "embedding.tokens": "transformer.word_embeddings", "final_norm": "transformer.ln_f", "head": "lm_head",
    **{f"blocks.*.attn.{name}_proj": f"{LAYER}.self_attention.query_key_value" for name in "qkv"},
    "blocks.*.attn.o_proj": f"{LAYER}.self_attention.dense",
    "blocks.*.ffn.up_proj": f"{LAYER}.mlp.dense_h_to_4h", "blocks.*.ffn.down_proj": f"{LAYER}.mlp.dense_4h_to_h",
    "blocks.*.attn.norm": f"{LAYER}.input_layernorm",
}  # fmt: skip
SEQUENTIAL = {
    "blocks.*.attn.norm_in": f"{LAYER}.input_layernorm", "blocks.*.ffn.norm_in": f"{LAYER}.post_attention_layernorm",
}  # fmt: skip
TWO_NORMS = {"blocks.*.attn.norm_in": f"{LAYER}.ln_attn", "blocks.*.ffn.norm_in": f"{LAYER}.ln_mlp"}


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; the queries of a key head stand before it and its values."""
    n = spec.sizes(first_parts(record)[0], record.d_model)
    queries = n.n_heads // n.n_kv_heads * n.head_dim
    cut = {f"{LAYER}.self_attention.query_key_value": (GroupSplit(n.n_kv_heads, (queries, n.head_dim, n.head_dim)),)}
    norms = SEQUENTIAL if len(record.blocks[0].stages) == 2 else TWO_NORMS
    return table_rules(record, NAMES | norms | classifier(record.head), cut, "transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    n, stages = spec.sizes(attn, record.d_model), record.blocks[0].stages
    side_by_side = len(stages) == 1
    two_norms = side_by_side and isinstance(stages[0].norm, spec.NoNorm)
    new = two_norms or n.n_kv_heads not in (1, n.n_heads)
    rope = {"rope_parameters": write_rope(attn.positions, n.head_dim)} if isinstance(attn.positions, spec.RoPE) else {}
    return {
        "model_type": "falcon", **write_head(record.head, "Falcon"), "hidden_size": record.d_model,
        "num_hidden_layers": len(record.blocks), "num_attention_heads": n.n_heads, "num_kv_heads": n.n_kv_heads,
        "new_decoder_architecture": new, "multi_query": n.n_kv_heads == 1, "parallel_attn": side_by_side,
        "num_ln_in_parallel_attn": (2 if two_norms else 1) if new else None, "alibi": not rope, "bias": attn.q_bias,
        "ffn_hidden_size": ffn.d_ff, "activation": THEIRS.get(ffn.activation), "vocab_size": record.vocab_size,
        "layer_norm_epsilon": decoders.eps_of(record.final_norm), "max_position_embeddings": record.context_length,
        "hidden_dropout": record.dropout.residual, "attention_dropout": record.dropout.attention,
    } | rope  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; a second norm is one of its tensors."""
    shape, norm = gguf_decoders.read_shape(config), spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"))
    config.expect("tensor_data_layout", *LAYOUT.values())
    attn = spec.MultiHead(**shape.heads, positions=gguf_decoders.read_rope(config, shape.head_dim))
    ffn = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu", up_bias=False, down_bias=False)
    build = parallel_two_norms if config.holds("blk.0.attn_norm_2.weight", False) else parallel
    return gguf_decoders.decoder(config, [build(attn, ffn, norm)] * shape.n_layers, norm)


LAYOUT = {"tensor_data_layout": "jploski"}  # queries, keys, values one after another
GGUF = {
    **gguf_decoders.GGUF_NAMES, **{f"blocks.*.attn.{name}_proj": "blk.*.attn_qkv" for name in "qkv"},
    "blocks.*.attn.norm": "blk.*.attn_norm",
    "blocks.*.attn.norm_in": "blk.*.attn_norm_2", "blocks.*.ffn.norm_in": "blk.*.attn_norm",
}  # fmt: skip

FAMILIES = (
    Family(
        ("falcon",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="transformer.",
        gguf=(Gguf("falcon", gguf_spec, lambda r: table_rules(r, GGUF), lambda r: standard_keys(r) | LAYOUT),),
    ),
)  # fmt: skip
