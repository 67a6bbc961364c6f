"""RoBERTa: BERT whose positions are counted from the ids that are no padding (Liu et al. 2019, arXiv:1907.11692)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import IGNORED, class_rules, first_names, token_rules, write_head
from cutaway.checkpoints.families import bert
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import prefix
from cutaway.checkpoints.rules import Rule, renames
from cutaway.errors import CheckpointError

STEMS = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
CLASSES = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def to_spec(config: Config) -> spec.Encoder:
    """config.json to a spec."""
    pad = config.integer("pad_token_id", 1)
    places = spec.Learned(
        n_positions=config.integer("max_position_embeddings") - pad - 1,
        offset=pad + 1,
        counted=spec.FromIds(pad_id=pad),
    )
    head = bert.read_head(config, STEMS[config.take("model_type")], CLASSES, "gelu")
    return bert.encoder(config, places, head, bert.embedding(config))


def rules(record: spec.Encoder) -> list[Rule]:
    """Their tensor names."""
    return renames(record, bert.STACK, prefix(record, "roberta.")) + head_rules(record)


def head_rules(record: spec.Encoder) -> list[Rule]:
    """The tensors of what stands on the stack."""
    match record.head:
        case spec.MaskedHead() as head:
            names = {"head.transform.dense": "dense", "head.transform.norm": "layer_norm"}
            return renames(record, names, "lm_head.") + token_rules(head, "lm_head")
        case spec.ClassHead(pool="none"):
            return class_rules()
        case spec.ClassHead():
            return renames(record, {"head.transform.dense": "dense", "head.projection": "out_proj"}, "classifier.")
    return []


def to_config(record: spec.Encoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    places = record.embedding.positions
    if not isinstance(places, spec.Learned) or not isinstance(places.counted, spec.FromIds):
        raise CheckpointError("an encoder whose positions are not counted from the ids does not fit this family")
    return {
        "model_type": "roberta", **bert.write_encoder(record), **write_head(record.head, "Roberta"),
        "pad_token_id": places.counted.pad_id,
    }  # fmt: skip


FAMILIES = (
    Family(
        tuple(STEMS), spec.Encoder, to_spec, rules, to_config,
        ignored_tensors=("embeddings.position_ids", "pooler.dense.*", "lm_head.*"),
        renamed=first_names, prefix="roberta.", ignored_keys=IGNORED,
    ),
)  # fmt: skip
