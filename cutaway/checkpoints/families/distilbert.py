"""DistilBERT: half of BERT's layers, no token types (Sanh et al. 2019, arXiv:1910.01108)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import first_parts, post_norm, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import attention, class_rules, n_positions, only_encoder, task, write_head
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import classes, prefix
from cutaway.checkpoints.rules import Rule, renames, same
from cutaway.spec.feedforward import Activation
from cutaway.spec.head import Head

NORM = spec.LayerNorm(eps=1e-12)
CLASSES = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
           "ForMultipleChoice")  # fmt: skip


def to_spec(config: Config) -> spec.Encoder:
    """config.json to a spec."""
    only_encoder(config)
    activation = config.choice("activation", ACTIVATIONS, "gelu")
    places = spec.Learned(n_positions=config.integer("max_position_embeddings"), counted=spec.ByColumn())
    dropout = config.number("dropout", 0.1)
    ffn = spec.Dense(d_ff=config.integer("hidden_dim"), activation=activation)
    block = post_norm(attention(config.integer("n_heads")), ffn, NORM)
    return spec.Encoder(
        d_model=config.integer("dim"), vocab_size=config.integer("vocab_size"), context_length=places.n_positions,
        embedding=spec.TokenEmbedding(positions=places, norm=NORM),
        layers=repeated([block] * config.integer("n_layers")), head=read_head(config, activation),
        dropout=spec.Dropout(
            embedding=dropout, residual=dropout, attention=config.number("attention_dropout", 0.1)
        ),
    )  # fmt: skip


def read_head(config: Config, activation: Activation) -> Head:
    relu = spec.Transform(activation="relu")
    match task(config, "DistilBert", CLASSES):
        case "ForMaskedLM":
            transform = spec.Transform(activation=activation, norm=NORM)
            return spec.MaskedHead(tied=config.flag("tie_word_embeddings", True), transform=transform)
        case "ForSequenceClassification":
            return spec.ClassHead(**classes(config), transform=relu)
        case "ForMultipleChoice":
            return spec.ClassHead(n_classes=1, problem="multi_label", transform=relu)
        case "ForTokenClassification" | "ForQuestionAnswering":
            return spec.ClassHead(**classes(config), pool="none")
    return spec.VectorHead()


STACK = {
    "embedding.tokens": "embeddings.word_embeddings", "embedding.positions": "embeddings.position_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
    "blocks.*.attn.q_proj": "transformer.layer.*.attention.q_lin",
    "blocks.*.attn.k_proj": "transformer.layer.*.attention.k_lin",
    "blocks.*.attn.v_proj": "transformer.layer.*.attention.v_lin",
    "blocks.*.attn.o_proj": "transformer.layer.*.attention.out_lin",
    "blocks.*.attn.norm_sum": "transformer.layer.*.sa_layer_norm",
    "blocks.*.ffn.up_proj": "transformer.layer.*.ffn.lin1", "blocks.*.ffn.down_proj": "transformer.layer.*.ffn.lin2",
    "blocks.*.ffn.norm_sum": "transformer.layer.*.output_layer_norm",
}  # fmt: skip


def rules(record: spec.Encoder) -> list[Rule]:
    """Their tensor names."""
    out = renames(record, STACK, prefix(record, "distilbert."))
    match record.head:
        case spec.MaskedHead():
            out += renames(
                record, {"head.transform.dense": "vocab_transform", "head.transform.norm": "vocab_layer_norm"}
            )
            out += [same("vocab_projector.weight", "head.weight"), same("vocab_projector.bias", "head.bias")]
        case spec.ClassHead():
            out += renames(record, {"head.transform.dense": "pre_classifier"})
            out += class_rules()
    return out


def to_config(record: spec.Encoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    (attn, ffn), head = first_parts(record), record.head
    return {
        "model_type": "distilbert", **write_head(head, "DistilBert"), "dim": record.d_model,
        "n_layers": len(record.blocks), "n_heads": attn.n_heads, "hidden_dim": ffn.d_ff,
        "activation": THEIRS.get(ffn.activation), "vocab_size": record.vocab_size,
        "max_position_embeddings": n_positions(record), "dropout": record.dropout.embedding,
        "attention_dropout": record.dropout.attention,
    }  # fmt: skip


FAMILIES = (
    Family(
        ("distilbert",), spec.Encoder, to_spec, rules, to_config, prefix="distilbert.",
        ignored_tensors=("embeddings.position_ids", "vocab_*"),
        ignored_keys={
            "sinusoidal_pos_embds": "the table of positions is stored", "qa_dropout": "training only",
            "seq_classif_dropout": "training only", "tie_weights_": "said by tie_word_embeddings",
            "output_past": "an API switch",
        },
    ),
)  # fmt: skip
