"""mBART: BART in pre-norm form, with a norm after each stack (Liu et al. 2020, arXiv:2001.08210)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.families import bart
from cutaway.checkpoints.family import Family

STYLE = Style("MBart", pre_norm=True, positions=bart.positions, embedding_norm=True)


def to_spec(config: Config) -> spec.EncoderDecoder:
    """config.json to a spec."""
    return read(config, STYLE)


def to_config(record: spec.EncoderDecoder) -> dict[str, Any]:
    """A spec to config.json."""
    return write(record, "mbart", STYLE)


FAMILIES = (
    Family(
        ("mbart",), spec.EncoderDecoder, to_spec, rules, to_config, prefix="model.", ignored_keys=IGNORED,
        ignored_tensors=("*coder.version", "shared.weight"),
        generation=spec.Generation(stop_ids=(2,), end_forced_id=2, pad_id=1),
    ),
)  # fmt: skip
