"""MPNet: BERT with biases by distance, positions counted from ids (Song et al. 2020, arXiv:2004.09297)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import first_parts
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import IGNORED, write_head
from cutaway.checkpoints.families import bert, roberta
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import prefix
from cutaway.checkpoints.rules import Rule, renames
from cutaway.errors import CheckpointError

PAD, BUCKETS = 1, spec.T5Buckets(bidirectional=True)
"""The library counts from this id on and has these buckets, whatever the configuration says."""


def to_spec(config: Config) -> spec.Encoder:
    """config.json to a spec."""
    config.expect("pad_token_id", PAD)
    places = spec.Learned(
        n_positions=config.integer("max_position_embeddings") - PAD - 1, offset=PAD + 1,
        counted=spec.FromIds(pad_id=PAD),
    )  # fmt: skip
    config.expect("relative_attention_num_buckets", BUCKETS.n_buckets)
    head = bert.read_head(config, "MPNet", roberta.CLASSES, "gelu")
    return bert.encoder(config, places, head, spec.TokenEmbedding(), BUCKETS)


STACK = bert.STACK | {
    **{f"blocks.*.attn.{x}_proj": f"encoder.layer.*.attention.attn.{x}" for x in "qkvo"},
    "blocks.*.attn.norm_sum": "encoder.layer.*.attention.LayerNorm",
    "relative_bias": "encoder.relative_attention_bias",
}


def rules(record: spec.Encoder) -> list[Rule]:
    """Their tensor names; the heads are RoBERTa's."""
    return renames(record, STACK, prefix(record, "mpnet.")) + roberta.head_rules(record)


def to_config(record: spec.Encoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    if first_parts(record)[0].positions != BUCKETS:
        raise CheckpointError("an encoder without 32 biases by distance does not fit this family")
    out = bert.write_encoder(record)
    del out["type_vocab_size"]
    return {
        "model_type": "mpnet", **out, **write_head(record.head, "MPNet"), "pad_token_id": PAD,
        "relative_attention_num_buckets": BUCKETS.n_buckets,
    }  # fmt: skip


FAMILIES = (
    Family(
        ("mpnet",), spec.Encoder, to_spec, rules, to_config, prefix="mpnet.", ignored_keys=IGNORED,
        ignored_tensors=("embeddings.position_ids", "pooler.dense.*", "lm_head.*"),
    ),
)  # fmt: skip
