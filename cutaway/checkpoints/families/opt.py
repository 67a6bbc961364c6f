"""OPT and Galactica: learned positions from row 2 on; one size has post-norm and a narrow table (arXiv:2205.01068)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import Stack, first_parts, post_norm, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import biases
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import read_head, write_head
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import Rule

IGNORED = {
    "init_std": "training only", "layerdrop": "training only", "activation_dropout": "training only",
    "gradient_checkpointing": "training only",
}  # fmt: skip
OFFSET = 2  # the rows of the pad token and of what stood before the first token


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    d_model, length = config.integer("hidden_size"), config.integer("max_position_embeddings")
    bias, affine = config.flag("enable_bias", True), config.flag("layer_norm_elementwise_affine", True)
    config.expect("learned_embeddings", True)
    config.expect("scale_embeddings", False)
    attn = spec.MultiHead(n_heads=config.integer("num_attention_heads"), **biases(bias))
    ffn = spec.Dense(
        d_ff=config.integer("ffn_dim"),
        activation=config.choice("activation_function", ACTIVATIONS, "relu"),
        up_bias=bias, down_bias=bias,
    )  # fmt: skip
    norm, pre_norm = spec.LayerNorm(gain=affine, shift=affine), config.flag("do_layer_norm_before", True)
    unnormed = config.flag("_remove_final_layer_norm", False) or not pre_norm
    width = config.nullable("word_embed_proj_dim", d_model)
    narrow = width not in (None, d_model)
    head = spec.LanguageHead(
        tied=config.flag("tie_word_embeddings", True),
        transform=spec.Transform(width=width, bias=False) if narrow else spec.NoTransform(),
    )
    return spec.Decoder(
        d_model=d_model,
        vocab_size=config.integer("vocab_size"),
        context_length=length,
        embedding=spec.TokenEmbedding(
            width=width if narrow else "d_model",
            projection="before_positions" if narrow else "none",
            positions=spec.Learned(n_positions=length, offset=OFFSET),
        ),
        layers=repeated(
            [(sequential if pre_norm else post_norm)(attn, ffn, norm)] * config.integer("num_hidden_layers")
        ),
        final_norm=spec.NoNorm() if unnormed else norm,
        head=read_head(config, head),
        dropout=spec.Dropout(residual=config.number("dropout", 0.1), attention=config.number("attention_dropout", 0.0)),
    )


LAYER = "model.decoder.layers.*"
NAMES = {
    "embedding.tokens": "model.decoder.embed_tokens", "embedding.positions": "model.decoder.embed_positions",
    "embedding.projection": "model.decoder.project_in", "final_norm": "model.decoder.final_layer_norm",
    "head.transform.dense": "model.decoder.project_out", "head": "lm_head", "head.projection": "score",
    **{f"blocks.*.attn.{name}_proj": f"{LAYER}.self_attn.{name}_proj" for name in "qkv"},
    "blocks.*.attn.o_proj": f"{LAYER}.self_attn.out_proj",
    "blocks.*.ffn.up_proj": f"{LAYER}.fc1", "blocks.*.ffn.down_proj": f"{LAYER}.fc2",
    **{f"blocks.*.attn.{place}": f"{LAYER}.self_attn_layer_norm" for place in ("norm_in", "norm_sum")},
    **{f"blocks.*.ffn.{place}": f"{LAYER}.final_layer_norm" for place in ("norm_in", "norm_sum")},
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    first, width = record.blocks[0].stages[0], record.embedding.width
    pre_norm = isinstance(first.norm_sum, spec.NoNorm)
    norm = first.branches[0].norm_in if pre_norm else first.norm_sum
    return {
        "model_type": "opt", **write_head(record.head, "OPT"), "hidden_size": record.d_model,
        "num_hidden_layers": len(record.blocks), "num_attention_heads": attn.n_heads, "ffn_dim": ffn.d_ff,
        "activation_function": THEIRS.get(ffn.activation), "vocab_size": record.vocab_size,
        "max_position_embeddings": record.context_length, "enable_bias": attn.q_bias,
        "layer_norm_elementwise_affine": isinstance(norm, spec.LayerNorm) and norm.gain,
        "do_layer_norm_before": pre_norm,
        "_remove_final_layer_norm": pre_norm and isinstance(record.final_norm, spec.NoNorm),
        "word_embed_proj_dim": record.d_model if width == "d_model" else width,
        "dropout": record.dropout.residual, "attention_dropout": record.dropout.attention,
    }  # fmt: skip


FAMILIES = (Family(("opt",), spec.Decoder, to_spec, rules, to_config, prefix="model.", ignored_keys=IGNORED),)
