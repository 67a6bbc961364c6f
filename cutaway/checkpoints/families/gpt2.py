"""GPT-2: learned positions, pre-norm LayerNorm, weights stored [in, out] (Radford et al. 2019).

GPT-J, CodeGen and GPT-BigCode describe their sizes with the same keys; `read` and `write` serve them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import Stack, first_parts, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import biases, eps_of
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_decoders import GGUF_NAMES
from cutaway.checkpoints.gguf_decoders import decoder as gguf_decoder
from cutaway.checkpoints.heads import classifier, read_head, write_head
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import Rule, Split, Transpose
from cutaway.spec.positions import AbsolutePositions

OLD_KEYS = {
    "summary_*": "of a second head that is not read", "gradient_checkpointing": "training only",
    "reorder_and_upcast_attn": "rounding only", "n_ctx": "n_positions says it",
}  # fmt: skip
BUFFERS = ("h.*.attn.bias", "h.*.attn.masked_bias")


class Parts(NamedTuple):
    """What all layers have in common."""

    d_model: int
    n_heads: int
    n_layers: int
    ffn: spec.Dense
    norm: spec.LayerNorm

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads


def read(config: Config) -> Parts:
    """Sizes, feed-forward network and norm; the network is four times as wide as the model where n_inner is null."""
    d_model, d_ff = config.integer("n_embd"), config.nullable("n_inner", None)
    ffn = spec.Dense(
        d_ff=4 * d_model if d_ff is None else config.integer("n_inner"),
        activation=config.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    norm = spec.LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    return Parts(d_model, config.integer("n_head"), config.integer("n_layer"), ffn, norm)


def decoder(
    config: Config, blocks: Sequence[spec.Block], parts: Parts, positions: AbsolutePositions, head: spec.LanguageHead,
    dropout: float = 0.0,
) -> spec.Decoder:  # fmt: skip
    """The whole model; `head.tied` and `dropout` are what the family does where the file says nothing."""
    config.expect("add_cross_attention", False)
    return spec.Decoder(
        d_model=parts.d_model,
        vocab_size=config.integer("vocab_size"),
        context_length=config.integer("n_positions"),
        embedding=spec.TokenEmbedding(positions=positions),
        layers=repeated(blocks),
        final_norm=parts.norm,
        head=read_head(config, head.replace(tied=config.flag("tie_word_embeddings", head.tied))),
        dropout=spec.Dropout(
            embedding=config.number("embd_pdrop", dropout),
            attention=config.number("attn_pdrop", dropout),
            residual=config.number("resid_pdrop", dropout),
        ),
    )


def write(record: Stack, model_type: str, stem: str, language: str) -> dict[str, Any]:
    """The keys of config.json that these families share; what does not fit shows when they are read back."""
    attn, ffn = first_parts(record)
    return {
        "model_type": model_type, **write_head(record.head, stem, language), "n_embd": record.d_model,
        "n_head": attn.n_heads, "n_layer": len(record.blocks), "n_positions": record.context_length,
        "n_inner": ffn.d_ff, "activation_function": THEIRS.get(ffn.activation), "vocab_size": record.vocab_size,
        "layer_norm_epsilon": eps_of(record.final_norm), "embd_pdrop": record.dropout.embedding,
        "attn_pdrop": record.dropout.attention, "resid_pdrop": record.dropout.residual,
    }  # fmt: skip


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    parts = read(config)
    scale = parts.head_dim**-0.5 if config.flag("scale_attn_weights", True) else 1.0
    deeper = config.flag("scale_attn_by_inverse_layer_idx", False)
    attn = spec.MultiHead(n_heads=parts.n_heads, **biases(True))
    scales = [scale / (i + 1) if deeper else scale for i in range(parts.n_layers)]
    blocks = [
        sequential(attn if each == parts.head_dim**-0.5 else attn.replace(scale=each), parts.ffn, parts.norm)
        for each in scales
    ]
    learned = spec.Learned(n_positions=config.integer("n_positions"))
    return decoder(config, blocks, parts, learned, spec.LanguageHead(), dropout=0.1)


NAMES = {
    "embedding.tokens": "transformer.wte", "embedding.positions": "transformer.wpe", "final_norm": "transformer.ln_f",
    "head": "lm_head",
    "blocks.*.attn.norm_in": "transformer.h.*.ln_1", "blocks.*.ffn.norm_in": "transformer.h.*.ln_2",
    **{f"blocks.*.attn.{name}_proj": "transformer.h.*.attn.c_attn" for name in "qkv"},
    "blocks.*.attn.o_proj": "transformer.h.*.attn.c_proj",
    "blocks.*.ffn.up_proj": "transformer.h.*.mlp.c_fc", "blocks.*.ffn.down_proj": "transformer.h.*.mlp.c_proj",
}  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; q, k and v are one matrix, and matrices stand [in, out]."""
    turned = {f"blocks.*.{name}_proj.weight": (Transpose(),) for name in ("attn.o", "ffn.up", "ffn.down")}
    qkv = {"transformer.h.*.attn.c_attn.weight": (Transpose(), Split((record.d_model,) * 3))}
    return table_rules(record, NAMES | classifier(record.head), turned | qkv, "transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    out = write(record, "gpt2", "GPT2", "LMHeadModel")
    scales = [spec.sizes(attn, record.d_model).scale for attn in spec.attentions(record.blocks)]
    return out | {
        "scale_attn_weights": scales[0] != 1.0, "scale_attn_by_inverse_layer_idx": scales[-1] != scales[0],
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    n_heads, eps = config.integer("attention.head_count"), config.number("attention.layer_norm_epsilon")
    config.expect("attention.head_count_kv", n_heads)
    ffn, norm = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu_tanh"), spec.LayerNorm(eps=eps)
    block = sequential(spec.MultiHead(n_heads=n_heads, **biases(True)), ffn, norm)
    learned = spec.TokenEmbedding(positions=spec.Learned(n_positions=config.integer("context_length")))
    return gguf_decoder(config, [block] * config.integer("block_count"), norm, embedding=learned)


GGUF = {**GGUF_NAMES, "embedding.positions": "position_embd",
        **{f"blocks.*.attn.{name}_proj": "blk.*.attn_qkv" for name in "qkv"}}  # fmt: skip

FAMILIES = (
    Family(
        ("gpt2",), spec.Decoder, to_spec, rules, to_config, BUFFERS, prefix="transformer.", ignored_keys=OLD_KEYS,
        gguf=(Gguf("gpt2", gguf_spec, lambda record: table_rules(record, GGUF)),),
    ),
)  # fmt: skip
