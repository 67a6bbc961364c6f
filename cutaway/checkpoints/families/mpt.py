"""MPT: ALiBi, no biases at all, GELU four times as wide as the model (MosaicML 2023)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack, first_parts, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import eps_of
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_decoders import GGUF_NAMES
from cutaway.checkpoints.gguf_decoders import decoder as gguf_decoder
from cutaway.checkpoints.heads import classifier, read_head, write_head
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import Rule

MAX_BIAS = 8  # transformers reads no other value of alibi_bias_max
IGNORED = {
    "expansion_ratio": "transformers makes the feed-forward network four times as wide whatever it says",
    "no_bias": "transformers has no biases whatever it says; a file with some is refused by their names",
    "learned_pos_emb": "the model has ALiBi", "emb_pdrop": "not read by transformers",
    "resid_pdrop": "not read by transformers", "embedding_fraction": "training only", "init_*": "training only",
    "attn_impl": "an API switch", "tokenizer_name": "the tokenizer's", "verbose": "an API switch",
}  # fmt: skip


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    d_model, norm = (
        config.integer("d_model"),
        spec.LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5), shift=False),
    )
    config.expect("logit_scale", None)
    config.expect("norm_type", "low_precision_layernorm", "layernorm")
    attn, dropout = _attention(config.inner("attn_config"), config.integer("n_heads"))
    block = sequential(attn, spec.Dense(d_ff=4 * d_model, activation="gelu", up_bias=False, down_bias=False), norm)
    return spec.Decoder(
        d_model=d_model,
        vocab_size=config.integer("vocab_size"),
        context_length=config.integer("max_seq_len"),
        layers=repeated([block] * config.integer("n_layers")),
        final_norm=norm,
        head=read_head(config, spec.LanguageHead(tied=config.flag("tie_word_embeddings", True))),
        dropout=spec.Dropout(attention=dropout, residual=dropout),
    )


def _attention(config: Config, n_heads: int) -> tuple[spec.MultiHead, float]:
    """Attention and its dropout from the table `attn_config`."""
    config.expect("attn_type", "multihead_attention")
    config.expect("alibi", True)
    config.expect("alibi_bias_max", MAX_BIAS)
    for key in ("prefix_lm", "qk_ln", "attn_uses_sequence_id"):
        config.expect(key, False)
    clip, scale = config.nullable("clip_qkv", None), config.nullable("softmax_scale", None)
    attn = spec.MultiHead(
        n_heads=n_heads,
        positions=spec.ALiBi(max_bias=float(MAX_BIAS)),
        scale="auto" if scale is None else config.number("softmax_scale"),
        clip="none" if clip in (None, 0) else config.number("clip_qkv"),
    )
    return attn, config.number("attn_pdrop", 0.0)


LAYER = "transformer.blocks.*"
NAMES = {
    "embedding.tokens": "transformer.wte", "final_norm": "transformer.norm_f", "head": "lm_head",
    "blocks.*.attn.norm_in": f"{LAYER}.norm_1", "blocks.*.ffn.norm_in": f"{LAYER}.norm_2",
    **{f"blocks.*.attn.{name}_proj": f"{LAYER}.attn.Wqkv" for name in "qkv"},
    "blocks.*.attn.o_proj": f"{LAYER}.attn.out_proj",
    **{f"blocks.*.ffn.{name}_proj": f"{LAYER}.ffn.{name}_proj" for name in ("up", "down")},
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES | classifier(record.head), prefix="transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    dropout = record.dropout.attention
    return {
        "model_type": "mpt", **write_head(record.head, "Mpt"), "d_model": record.d_model, "n_heads": attn.n_heads,
        "n_layers": len(record.blocks), "max_seq_len": record.context_length, "vocab_size": record.vocab_size,
        "layer_norm_epsilon": eps_of(record.final_norm), "no_bias": True, "expansion_ratio": 4,
        "attn_config": {
            "alibi": True, "alibi_bias_max": MAX_BIAS, "clip_qkv": None if attn.clip == "none" else attn.clip,
            "softmax_scale": None if attn.scale == "auto" else attn.scale,
            "attn_pdrop": int(dropout) if dropout == int(dropout) else dropout,  # transformers takes whole numbers
        },
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    n_heads, eps = config.integer("attention.head_count"), config.number("attention.layer_norm_epsilon")
    config.expect("attention.head_count_kv", n_heads)
    clip = config.number("attention.clamp_kqv", 0.0)
    attn = spec.MultiHead(
        n_heads=n_heads,
        positions=spec.ALiBi(max_bias=config.number("attention.max_alibi_bias")),
        clip=clip if clip > 0 else "none",
    )
    d_ff, norm = config.integer("feed_forward_length"), spec.LayerNorm(eps=eps, shift=False)
    block = sequential(attn, spec.Dense(d_ff=d_ff, activation="gelu", up_bias=False, down_bias=False), norm)
    return gguf_decoder(config, [block] * config.integer("block_count"), norm)


GGUF = {**GGUF_NAMES, **{f"blocks.*.attn.{name}_proj": "blk.*.attn_qkv" for name in "qkv"}}

FAMILIES = (
    Family(
        ("mpt",), spec.Decoder, to_spec, rules, to_config, prefix="transformer.", ignored_keys=IGNORED,
        gguf=(Gguf("mpt", gguf_spec, lambda record: table_rules(record, GGUF)),),
    ),
)  # fmt: skip
