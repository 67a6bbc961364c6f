"""BERT: a post-norm encoder with learned positions and token types (Devlin et al. 2018, arXiv:1810.04805)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import first_parts, post_norm, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import (
    IGNORED,
    attention,
    class_rules,
    first_names,
    n_positions,
    only_encoder,
    task,
    token_rules,
    write_head,
)  # fmt: skip
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_encoders import encoder_rules, read_encoder
from cutaway.checkpoints.heads import classes, prefix
from cutaway.checkpoints.rules import Rule, renames
from cutaway.spec.feedforward import Activation
from cutaway.spec.head import Head
from cutaway.spec.positions import RelativePositions

POOLER = spec.Transform(activation="tanh")
CLASSES = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification",
           "ForQuestionAnswering", "ForMultipleChoice")  # fmt: skip


def to_spec(config: Config) -> spec.Encoder:
    """config.json to a spec."""
    places = spec.Learned(n_positions=config.integer("max_position_embeddings"), counted=spec.ByColumn())
    head = read_head(config, "Bert", CLASSES, activation(config))
    return encoder(config, places, head, embedding(config))


def embedding(config: Config) -> spec.TokenEmbedding:
    return spec.TokenEmbedding(n_token_types=config.integer("type_vocab_size"))


def encoder(
    config: Config, places: spec.Learned, head: Head, embedding: spec.TokenEmbedding,
    distances: RelativePositions = spec.NoPositions(),
) -> spec.Encoder:  # fmt: skip
    """The encoder that the usual keys describe; `embedding` is without places and norm, which it gets here."""
    only_encoder(config)
    ffn = spec.Dense(d_ff=config.integer("intermediate_size"), activation=activation(config))
    attn = attention(config.integer("num_attention_heads")).replace(positions=distances)
    dropout = config.number("hidden_dropout_prob", 0.1)
    return spec.Encoder(
        d_model=config.integer("hidden_size"), vocab_size=config.integer("vocab_size"),
        context_length=places.n_positions, embedding=embedding.replace(positions=places, norm=norm(config)),
        layers=repeated([post_norm(attn, ffn, norm(config))] * config.integer("num_hidden_layers")), head=head,
        dropout=spec.Dropout(
            embedding=dropout, residual=dropout, attention=config.number("attention_probs_dropout_prob", 0.1)
        ),
    )  # fmt: skip


def activation(config: Config) -> Activation:
    return config.choice("hidden_act", ACTIVATIONS)


def norm(config: Config) -> spec.LayerNorm:
    return spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-12))


def read_head(config: Config, stem: str, known: tuple[str, ...], masked: Activation) -> Head:
    """The head of a class among `known`; `masked` is the activation before the logits of masked tokens."""
    match task(config, stem, known):
        case "ForMaskedLM" | "ForPreTraining":
            transform = spec.Transform(activation=masked, norm=norm(config))
            return spec.MaskedHead(tied=config.flag("tie_word_embeddings", True), transform=transform)
        case "ForSequenceClassification":
            return spec.ClassHead(**classes(config), transform=POOLER)
        case "ForMultipleChoice":
            return spec.ClassHead(n_classes=1, problem="multi_label", transform=POOLER)
        case "ForTokenClassification" | "ForQuestionAnswering":
            return spec.ClassHead(**classes(config), pool="none")
    there = config.holds("*pooler.dense.weight", True)
    return spec.VectorHead(pooler=POOLER if there else spec.NoTransform())


STACK = {
    "embedding.tokens": "embeddings.word_embeddings", "embedding.positions": "embeddings.position_embeddings",
    "embedding.types": "embeddings.token_type_embeddings", "embedding.norm": "embeddings.LayerNorm",
    "embedding.projection": "embeddings_project",
    "blocks.*.attn.q_proj": "encoder.layer.*.attention.self.query",
    "blocks.*.attn.k_proj": "encoder.layer.*.attention.self.key",
    "blocks.*.attn.v_proj": "encoder.layer.*.attention.self.value",
    "blocks.*.attn.o_proj": "encoder.layer.*.attention.output.dense",
    "blocks.*.attn.norm_sum": "encoder.layer.*.attention.output.LayerNorm",
    "blocks.*.ffn.up_proj": "encoder.layer.*.intermediate.dense",
    "blocks.*.ffn.down_proj": "encoder.layer.*.output.dense",
    "blocks.*.ffn.norm_sum": "encoder.layer.*.output.LayerNorm",
    "head.pooler.dense": "pooler.dense",
}  # fmt: skip


def rules(record: spec.Encoder) -> list[Rule]:
    """Their tensor names."""
    top = prefix(record, "bert.")
    out = renames(record, STACK, top)
    match record.head:
        case spec.MaskedHead():
            names = {"head.transform.dense": "transform.dense", "head.transform.norm": "transform.LayerNorm"}
            out += renames(record, names, "cls.predictions.")
            out += token_rules(record.head, "cls.predictions")
        case spec.ClassHead():
            out += renames(record, {"head.transform.dense": "pooler.dense"}, top)
            out += class_rules()
    return out


def to_config(record: spec.Encoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    return {"model_type": "bert", **write_encoder(record), **write_head(record.head, "Bert")}


def write_encoder(record: spec.Encoder) -> dict[str, Any]:
    """The usual keys for an encoder."""
    attn, ffn = first_parts(record)
    norm = record.embedding.norm
    return {
        "hidden_size": record.d_model, "num_hidden_layers": len(record.blocks), "num_attention_heads": attn.n_heads,
        "intermediate_size": ffn.d_ff, "hidden_act": THEIRS.get(ffn.activation), "vocab_size": record.vocab_size,
        "max_position_embeddings": n_positions(record), "type_vocab_size": record.embedding.n_token_types,
        "layer_norm_eps": norm.eps if isinstance(norm, spec.LayerNorm) else None,
        "hidden_dropout_prob": record.dropout.embedding, "attention_probs_dropout_prob": record.dropout.attention,
    }  # fmt: skip


FAMILIES = (
    Family(
        ("bert",), spec.Encoder, to_spec, rules, to_config,
        ignored_tensors=("embeddings.position_ids", "pooler.dense.*", "cls.*"),
        renamed=first_names, prefix="bert.", ignored_keys=IGNORED,
        gguf=(Gguf("bert", read_encoder, encoder_rules),),
    ),
)  # fmt: skip
