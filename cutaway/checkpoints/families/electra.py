"""ELECTRA: BERT with a narrow embedding, a generator and a discriminator (Clark et al. 2020, arXiv:2003.10555)."""

from __future__ import annotations

from typing import Any, Literal

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import IGNORED, class_rules, first_names, task, write_head
from cutaway.checkpoints.families import bert
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import classes, prefix
from cutaway.checkpoints.rules import Rule, renames, same
from cutaway.spec.head import Head

CLASSES = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification",
           "ForQuestionAnswering")  # fmt: skip


def to_spec(config: Config) -> spec.Encoder:
    """config.json to a spec."""
    width, d_model = config.integer("embedding_size", 128), config.integer("hidden_size")
    places = spec.Learned(n_positions=config.integer("max_position_embeddings"), counted=spec.ByColumn())
    embedding = bert.embedding(config)
    if width != d_model:
        embedding = embedding.replace(width=width, projection="after_norm", projection_bias=True)
    return bert.encoder(config, places, read_head(config, embedding.width), embedding)


def read_head(config: Config, width: int | Literal["d_model"]) -> Head:
    match task(config, "Electra", CLASSES):
        case "ForMaskedLM":
            transform = spec.Transform(width=width, activation="gelu", norm=bert.norm(config))
            return spec.MaskedHead(tied=config.flag("tie_word_embeddings", True), transform=transform)
        case "ForPreTraining":  # was this token replaced?
            transform = spec.Transform(activation=bert.activation(config))
            return spec.ClassHead(n_classes=1, problem="multi_label", pool="none", transform=transform)
        case "ForSequenceClassification":
            return spec.ClassHead(**classes(config), transform=spec.Transform(activation="gelu"))
        case "ForTokenClassification" | "ForQuestionAnswering":
            return spec.ClassHead(**classes(config), pool="none")
    return spec.VectorHead()


def rules(record: spec.Encoder) -> list[Rule]:
    """Their tensor names."""
    out = renames(record, bert.STACK, prefix(record, "electra."))
    match record.head:
        case spec.MaskedHead():
            names = {"head.transform.dense": "dense", "head.transform.norm": "LayerNorm"}
            out += renames(record, names, "generator_predictions.")
            out += [same("generator_lm_head.weight", "head.weight"), same("generator_lm_head.bias", "head.bias")]
        case spec.ClassHead(pool="none", transform=spec.Transform()):
            names = {"head.transform.dense": "dense", "head.projection": "dense_prediction"}
            out += renames(record, names, "discriminator_predictions.")
        case spec.ClassHead(pool="none"):
            out += class_rules()
        case spec.ClassHead():
            out += renames(record, {"head.transform.dense": "dense", "head.projection": "out_proj"}, "classifier.")
    return out


def to_config(record: spec.Encoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    out = {
        "model_type": "electra", **bert.write_encoder(record), **write_head(record.head, "Electra"),
        "embedding_size": spec.table_width(record.embedding, record.d_model),
    }  # fmt: skip
    if isinstance(record.head, spec.ClassHead) and record.head.pool == "none" and record.head.transform.kind == "dense":
        out["architectures"] = ["ElectraForPreTraining"]
    return out


FAMILIES = (
    Family(
        ("electra",), spec.Encoder, to_spec, rules, to_config,
        ignored_tensors=("embeddings.position_ids", "generator_*", "discriminator_predictions.*"),
        renamed=first_names, prefix="electra.",
        ignored_keys=IGNORED | {"summary_*": "of a head that is not read", "generator_size": "training only"},
    ),
)  # fmt: skip
