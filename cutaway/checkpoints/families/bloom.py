"""BLOOM: ALiBi, a norm on the embedding, q, k and v of a head together (arXiv:2211.05100)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack, first_parts, first_sizes, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import biases, eps_of
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_decoders import GGUF_NAMES
from cutaway.checkpoints.gguf_decoders import decoder as gguf_decoder
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.heads import classifier, read_head, write_head
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import GroupSplit, Rule
from cutaway.errors import CheckpointError

IGNORED = {
    "seq_length": "ALiBi has no last position", "offset_alibi": "the softmax forgets it",
    "slow_but_exact": "the same sum", "attention_softmax_in_fp32": "rounding only",
    "*_fusion": "an API switch", "skip_bias_add*": "an API switch", "gradient_checkpointing": "training only",
}  # fmt: skip


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    for key, other in (("hidden_size", "n_embed"), ("n_head", "num_attention_heads"), ("n_layer", "num_hidden_layers")):
        config.also(key, other)
    d_model = config.integer("hidden_size")
    if config.flag("slow_but_exact", False) and config.integer("pretraining_tp", 1) > 1:
        raise CheckpointError(
            f"{config.where}: slow_but_exact with pretraining_tp above 1 makes transformers leave out two biases of "
            "each layer, which no other software does; set it to false"
        )
    norm = spec.LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    attn = spec.MultiHead(n_heads=config.integer("n_head"), positions=spec.ALiBi(), **biases(True))
    ffn = spec.Dense(d_ff=4 * d_model, activation="gelu_tanh")
    from_normed = config.flag("apply_residual_connection_post_layernorm", False)
    stages = tuple(
        spec.Stage(branches=(spec.Branch(part=part),), norm=norm, residual=spec.Add(skip="normed"))
        if from_normed
        else spec.Stage(branches=(spec.Branch(part=part, norm_in=norm),))
        for part in (attn, ffn)
    )
    return spec.Decoder(
        d_model=d_model,
        vocab_size=config.integer("vocab_size"),
        context_length="unlimited",
        embedding=spec.TokenEmbedding(norm=norm),
        layers=repeated([spec.Block(stages=stages)] * config.integer("n_layer")),
        final_norm=norm,
        head=read_head(config, spec.LanguageHead(tied=config.flag("tie_word_embeddings", True))),
        dropout=spec.Dropout(
            residual=config.number("hidden_dropout", 0.0), attention=config.number("attention_dropout", 0.0)
        ),
    )


LAYER = "transformer.h.*"
NAMES = {
    "embedding.tokens": "transformer.word_embeddings", "embedding.norm": "transformer.word_embeddings_layernorm",
    "final_norm": "transformer.ln_f", "head": "lm_head",
    **{f"blocks.*.attn.{name}_proj": f"{LAYER}.self_attention.query_key_value" for name in "qkv"},
    "blocks.*.attn.o_proj": f"{LAYER}.self_attention.dense",
    "blocks.*.ffn.up_proj": f"{LAYER}.mlp.dense_h_to_4h", "blocks.*.ffn.down_proj": f"{LAYER}.mlp.dense_4h_to_h",
    **{f"blocks.*.attn.{place}": f"{LAYER}.input_layernorm" for place in ("norm", "norm_in")},
    **{f"blocks.*.ffn.{place}": f"{LAYER}.post_attention_layernorm" for place in ("norm", "norm_in")},
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    n = first_sizes(record)
    cut = {f"{LAYER}.self_attention.query_key_value": (GroupSplit(n.n_heads, (n.head_dim,) * 3),)}
    return table_rules(record, NAMES | classifier(record.head), cut, "transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, residual = first_parts(record)[0], record.blocks[0].stages[0].residual
    return {
        "model_type": "bloom", **write_head(record.head, "Bloom"), "hidden_size": record.d_model,
        "n_layer": len(record.blocks), "n_head": attn.n_heads, "vocab_size": record.vocab_size,
        "layer_norm_epsilon": eps_of(record.final_norm),
        "apply_residual_connection_post_layernorm": isinstance(residual, spec.Add) and residual.skip == "normed",
        "hidden_dropout": record.dropout.residual, "attention_dropout": record.dropout.attention,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; the length in it was that of training, and ALiBi has none."""
    n_heads, norm = (
        config.integer("attention.head_count"),
        spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon")),
    )
    config.expect("attention.head_count_kv", n_heads)
    attn = spec.MultiHead(n_heads=n_heads, positions=spec.ALiBi(), **biases(True))
    ffn = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu_tanh")
    blocks = [sequential(attn, ffn, norm)] * config.integer("block_count")
    record = gguf_decoder(config, blocks, norm, embedding=spec.TokenEmbedding(norm=norm))
    return record.replace(context_length="unlimited")


GGUF = {
    **GGUF_NAMES, "embedding.norm": "token_embd_norm", **{f"blocks.*.attn.{x}_proj": "blk.*.attn_qkv" for x in "qkv"}
}  # fmt: skip
TRAINED = {"context_length": 2048}

FAMILIES = (
    Family(
        ("bloom",), spec.Decoder, to_spec, rules, to_config, prefix="transformer.", ignored_keys=IGNORED,
        gguf=(
            Gguf("bloom", gguf_spec, lambda r: table_rules(r, GGUF), lambda r: standard_keys(r) | TRAINED),
        ),
    ),
)  # fmt: skip
