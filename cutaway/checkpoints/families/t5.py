"""T5 and mT5: pre-norm RMSNorm, biases by distance, scores without a factor (Raffel et al. 2019, arXiv:1910.10683).

Version 1.0: two matrices, ReLU, a factor 1/sqrt(d_model) before the tied head; 1.1, mT5: gated, mostly an own head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import chain, first_parts, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import eps_of
from cutaway.checkpoints.encoder_decoders import head_rules, read_head, write_head
from cutaway.checkpoints.encoders import task
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.rules import Rule, renames, same
from cutaway.errors import CheckpointError

STEMS = {"t5": "T5", "mt5": "MT5"}
CLASSES = ("ForConditionalGeneration", "Model", "EncoderModel", "ForSequenceClassification", "ForTokenClassification",
           "ForQuestionAnswering")  # fmt: skip


def to_spec(config: Config) -> spec.Encoder | spec.EncoderDecoder:
    """config.json to a spec."""
    model_type = config.take("model_type")
    kind = task(config, STEMS[model_type], CLASSES, CLASSES[0])
    config.expect("is_decoder", False)
    norm, n_layers = spec.RMSNorm(eps=config.number("layer_norm_epsilon", 1e-6)), config.integer("num_layers")
    n_decoder = config.integer("num_decoder_layers", n_layers)
    ffn, rate = read_ffn(config, model_type), config.number("dropout_rate", 0.1)
    dropout = spec.Dropout(embedding=rate, attention=rate, residual=rate, hidden=rate)
    d_model, head = config.integer("d_model"), read_head(config, kind, read_language(config, model_type))
    attn = read_attention(config, spec.FullMask())
    encoder = spec.Side(
        vocab_size=config.integer("vocab_size"), context_length="unlimited", final_norm=norm,
        layers=repeated([chain((attn, ffn), norm)] * n_layers),
    )  # fmt: skip
    if kind in ("EncoderModel", "ForTokenClassification"):
        return spec.Encoder(
            d_model=d_model, vocab_size=encoder.vocab_size, context_length="unlimited", final_norm=norm,
            layers=encoder.layers, head=head, dropout=dropout,
        )  # fmt: skip
    cross = spec.Cross(n_heads=attn.n_heads, head_dim=attn.head_dim, scale=1.0)
    block = chain((read_attention(config, spec.CausalMask()), cross, ffn), norm)
    decoder = encoder.replace(layers=repeated([block] * n_decoder))
    return spec.EncoderDecoder(d_model=d_model, encoder=encoder, decoder=decoder, head=head, dropout=dropout)


def read_attention(config: Config, mask: spec.FullMask | spec.CausalMask) -> spec.MultiHead:
    n_heads, head_dim = config.integer("num_heads"), config.integer("d_kv")
    buckets = spec.T5Buckets(
        n_buckets=config.integer("relative_attention_num_buckets", 32),
        max_distance=config.integer("relative_attention_max_distance", 128),
        bidirectional=isinstance(mask, spec.FullMask),
    )
    return spec.MultiHead(n_heads=n_heads, head_dim=head_dim, mask=mask, positions=buckets, scale=1.0)


def read_ffn(config: Config, model_type: str) -> spec.Dense | spec.Gated:
    """`gated-gelu` means the tanh form; `dense_act_fn` and `is_gated_act`, where they are written out, win."""
    words = config.take("feed_forward_proj", {"t5": "relu", "mt5": "gated-gelu"}[model_type]).split("-")
    plain = "gelu_new" if words == ["gated", "gelu"] else words[-1]
    activation = config.choice("dense_act_fn", ACTIVATIONS, plain)
    gated, d_ff = config.flag("is_gated_act", words[0] == "gated"), config.integer("d_ff")
    if len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
        raise CheckpointError(f"{config.where}: feed_forward_proj is {'-'.join(words)!r}, expected NAME or gated-NAME")
    if gated:
        return spec.Gated(d_ff=d_ff, activation=activation)
    return spec.Dense(d_ff=d_ff, activation=activation, up_bias=False, down_bias=False)


def read_language(config: Config, model_type: str) -> spec.LanguageHead:
    """An unscaled head is tied or not as the file has a matrix for it or not, whatever `tie_word_embeddings` says."""
    named = config.flag("tie_word_embeddings", True)
    scaled = config.flag("scale_decoder_outputs", named) if model_type == "t5" else False
    tied = scaled or not config.holds("lm_head.weight", not named)
    return spec.LanguageHead(tied=tied, input_factor="1/sqrt_d_model" if scaled else 1.0)


NETWORK = {"ffn.up_proj": "wi", "ffn.down_proj": "wo"}
GATED = {"ffn.gate_proj": "wi_0", "ffn.up_proj": "wi_1", "ffn.down_proj": "wo"}


def rules(record: spec.Encoder | spec.EncoderDecoder) -> list[Rule]:
    """Their tensor names; the biases by distance lie in the first layer of each stack."""
    out: list[Rule] = []
    for prefix in spec.stacks(record):
        theirs = prefix or "encoder."
        n = 2 if theirs == "decoder." else 1
        network = GATED if isinstance(parts(record)[2], spec.Gated) else NETWORK
        names = {f"attn.{x}_proj": f"0.SelfAttention.{x}" for x in "qkvo"} | {"attn.norm_in": "0.layer_norm"}
        names |= {f"cross.{x}_proj": f"1.EncDecAttention.{x}" for x in "qkvo"} | {"cross.norm_in": "1.layer_norm"}
        names |= {ours: f"{n}.DenseReluDense.{name}" for ours, name in network.items()}
        names["ffn.norm_in"] = f"{n}.layer_norm"
        table = {f"{prefix}blocks.*.{ours}": f"{theirs}block.*.layer.{name}" for ours, name in names.items()}
        table[f"{prefix}final_norm"] = f"{theirs}final_layer_norm"
        table[f"{prefix}relative_bias"] = f"{theirs}block.0.layer.0.SelfAttention.relative_attention_bias"
        tables = ("shared.weight", f"{theirs}embed_tokens.weight")
        out += renames(record, table) + [same(name, f"{prefix}embedding.tokens.weight") for name in tables]
    return out + head_rules(record)


def parts(record: spec.Encoder | spec.EncoderDecoder) -> tuple[spec.MultiHead, spec.T5Buckets, spec.Dense | spec.Gated]:
    """Attention, its biases, and feed-forward network of the encoder's first layer, which stand for all."""
    attn, ffn = first_parts(record.encoder if isinstance(record, spec.EncoderDecoder) else record)
    if not isinstance(attn.positions, spec.T5Buckets):
        raise CheckpointError("only attention with biases by distance fits this family")
    return attn, attn.positions, ffn


def to_config(record: spec.Encoder | spec.EncoderDecoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    (attn, buckets, ffn), head = parts(record), record.head
    two, gated = isinstance(record, spec.EncoderDecoder), isinstance(ffn, spec.Gated)
    encoder, decoder = (record.encoder, record.decoder) if isinstance(record, spec.EncoderDecoder) else (record, record)
    scaled = isinstance(head, spec.LanguageHead) and head.input_factor != 1.0
    activation = THEIRS.get(ffn.activation)
    return {
        "model_type": "t5", **write_head(record, "T5"), "d_model": record.d_model, "d_ff": ffn.d_ff,
        "d_kv": spec.sizes(attn, record.d_model).head_dim, "num_layers": len(encoder.blocks), "num_heads": attn.n_heads,
        "num_decoder_layers": len(decoder.blocks),
        "relative_attention_num_buckets": buckets.n_buckets, "relative_attention_max_distance": buckets.max_distance,
        "feed_forward_proj": f"gated-{activation}" if gated else activation, "dense_act_fn": activation,
        "is_gated_act": gated, "layer_norm_epsilon": eps_of(encoder.final_norm), "vocab_size": encoder.vocab_size,
        "dropout_rate": record.dropout.residual, "is_encoder_decoder": two,
        "scale_decoder_outputs": scaled, "tie_word_embeddings": isinstance(head, spec.LanguageHead) and head.tied,
    }  # fmt: skip


def mt5_config(record: spec.Encoder | spec.EncoderDecoder) -> dict[str, Any]:
    """The same in mT5's name, which has no factor before the head."""
    return to_config(record) | {"model_type": "mt5", **write_head(record, "MT5")}


T5 = Family(
    ("t5",), (spec.Encoder, spec.EncoderDecoder), to_spec, rules, to_config, prefix="transformer.",
    ignored_tensors=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    generation=spec.Generation(start_id=0, stop_ids=(1,), pad_id=0),
    ignored_keys={
        "n_positions": "no limit comes of it", "initializer_factor": "training only",
        "classifier_dropout": "training only", "output_past": "an API switch", "model_parallel": "an API switch",
        "scale_decoder_outputs": "mT5 has no such factor",
    },
)  # fmt: skip
FAMILIES = (T5, replace(T5, model_types=("mt5",), to_config=mt5_config))
