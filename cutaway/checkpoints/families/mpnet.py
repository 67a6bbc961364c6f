"""MPNet: BERT with biases by distance, positions counted from ids (Song et al. 2020, arXiv:2004.09297)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import IGNORED, class_rules, parts, task, token_rules, write_head
from cutaway.checkpoints.families import bert
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import classes, prefix
from cutaway.checkpoints.rules import Rule, renames
from cutaway.errors import CheckpointError

CLASSES = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
PAD, BUCKETS = 1, spec.T5Buckets(bidirectional=True)
"""The library counts from this id on and has these buckets, whatever the configuration says."""


def to_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    config.expect("pad_token_id", PAD)
    places = spec.Learned(
        n_positions=config.integer("max_position_embeddings") - PAD - 1, offset=PAD + 1,
        counted=spec.FromIds(pad_id=PAD),
    )  # fmt: skip
    config.expect("relative_attention_num_buckets", BUCKETS.n_buckets)
    record = bert.encoder(config, places, read_head(config), n_token_types=0)
    place = lambda each: each.replace(positions=BUCKETS) if isinstance(each, spec.MultiHead) else each
    return spec.mapped(record, place)


def read_head(config: Config) -> Any:
    match task(config, "MPNet", CLASSES):
        case "ForMaskedLM":
            transform = spec.Transform(activation="gelu", norm=bert.norm(config))
            return spec.MaskedHead(tied=config.flag("tie_word_embeddings", True), transform=transform)
        case "ForSequenceClassification":
            return spec.ClassHead(**classes(config), transform=bert.POOLER)
        case "ForTokenClassification" | "ForQuestionAnswering":
            return spec.ClassHead(**classes(config), pool="none")
    there = config.holds("*pooler.dense.weight", True)
    return spec.VectorHead(pooler=bert.POOLER if there else spec.NoTransform())


STACK = bert.STACK | {
    **{f"blocks.*.attn.{x}_proj": f"encoder.layer.*.attention.attn.{x}" for x in "qkvo"},
    "blocks.*.attn.norm_sum": "encoder.layer.*.attention.LayerNorm",
    "relative_bias": "encoder.relative_attention_bias",
}


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names."""
    out = renames(record, STACK, prefix(record, "mpnet."))
    match record.head:
        case spec.MaskedHead():
            out += renames(record, {"head.transform.dense": "dense", "head.transform.norm": "layer_norm"}, "lm_head.")
            out += token_rules(record.head, "lm_head")
        case spec.ClassHead(pool="none"):
            out += class_rules()
        case spec.ClassHead():
            out += renames(record, {"head.transform.dense": "dense", "head.projection": "out_proj"}, "classifier.")
    return out


def to_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    if parts(record)[0].positions != BUCKETS:
        raise CheckpointError("an encoder without 32 biases by distance does not fit this family")
    out = bert.write_encoder(record)
    del out["type_vocab_size"]
    return {
        "model_type": "mpnet", **out, **write_head(record.head, "MPNet"), "pad_token_id": PAD,
        "relative_attention_num_buckets": BUCKETS.n_buckets,
    }  # fmt: skip


FAMILIES = (
    Family(
        ("mpnet",), to_spec, rules, to_config, prefix="mpnet.", ignored_keys=IGNORED,
        ignored_tensors=("embeddings.position_ids", "pooler.dense.*", "lm_head.*"),
    ),
)  # fmt: skip
