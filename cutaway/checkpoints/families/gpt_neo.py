"""GPT-Neo: GPT-2's shape with local attention on every other layer and unscaled scores (Black et al. 2021)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import Stack, first_parts, repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import eps_of
from cutaway.checkpoints.families.gpt2 import BUFFERS, NAMES, OLD_KEYS
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import classifier, read_head, write_head
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_heads")
    d_ff, length = config.nullable("intermediate_size", None), config.integer("max_position_embeddings")
    norm = spec.LayerNorm(eps=config.number("layer_norm_epsilon", 1e-5))
    ffn = spec.Dense(
        d_ff=4 * d_model if d_ff is None else config.integer("intermediate_size"),
        activation=config.choice("activation_function", ACTIVATIONS, "gelu_new"),
    )
    masks = {"global": spec.CausalMask(), "local": spec.SlidingMask(window=config.integer("window_size", 256))}
    blocks = [
        sequential(spec.MultiHead(n_heads=n_heads, scale=1.0, mask=masks[kind], o_bias=True), ffn, norm)
        for kind in _kinds(config)
    ]
    return spec.Decoder(
        d_model=d_model,
        vocab_size=config.integer("vocab_size"),
        context_length=length,
        embedding=spec.TokenEmbedding(positions=spec.Learned(n_positions=length)),
        layers=repeated(blocks),
        final_norm=norm,
        head=read_head(config, spec.LanguageHead(tied=config.flag("tie_word_embeddings", True))),
        dropout=spec.Dropout(
            embedding=config.number("embed_dropout", 0.0),
            attention=config.number("attention_dropout", 0.0),
            residual=config.number("resid_dropout", 0.0),
        ),
    )


def _kinds(config: Config) -> list[str]:
    """The kind of each layer from `attention_types`: [[kinds, how often], ...]."""
    types, n_layers = config.take("attention_types", [[["global", "local"], 12]]), config.integer("num_layers")
    try:
        kinds = [kind for pattern, times in types for _ in range(times) for kind in pattern]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != n_layers or not set(kinds) <= {"global", "local"}:
        raise CheckpointError(
            f"{config.where}: attention_types is {types!r}, expected [[kinds, times], ...] that name global or local "
            f"for {n_layers} layers"
        )
    config.expect("attention_layers", kinds)
    return kinds


def rules(record: Stack) -> list[Rule]:
    """GPT-2's names but for attention, [out, in]."""
    own = {f"blocks.*.attn.{name}_proj": f"transformer.h.*.attn.attention.{name}_proj" for name in "qkv"}
    own["blocks.*.attn.o_proj"] = "transformer.h.*.attn.attention.out_proj"
    return table_rules(record, NAMES | classifier(record.head) | own, prefix="transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    masks = [attn.mask for attn in spec.attentions(record.blocks)]
    kinds = ["local" if isinstance(mask, spec.SlidingMask) else "global" for mask in masks]
    windows = [mask.window for mask in masks if isinstance(mask, spec.SlidingMask)]
    return {
        "model_type": "gpt_neo", **write_head(record.head, "GPTNeo"), "hidden_size": record.d_model,
        "num_heads": attn.n_heads, "num_layers": len(record.blocks), "attention_types": [[kinds, 1]],
        "attention_layers": kinds, "window_size": windows[0] if windows else 256, "intermediate_size": ffn.d_ff,
        "activation_function": THEIRS.get(ffn.activation), "layer_norm_epsilon": eps_of(record.final_norm),
        "max_position_embeddings": record.context_length, "vocab_size": record.vocab_size,
        "embed_dropout": record.dropout.embedding, "attention_dropout": record.dropout.attention,
        "resid_dropout": record.dropout.residual,
    }  # fmt: skip


FAMILIES = (
    Family(
        ("gpt_neo",), spec.Decoder, to_spec, rules, to_config,
        (*BUFFERS, "h.*.attn.attention.bias", "h.*.attn.attention.masked_bias"), prefix="transformer.",
        ignored_keys=OLD_KEYS | {"classifier_dropout": "training only"},
    ),
)  # fmt: skip
