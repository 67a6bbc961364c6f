"""PEGASUS: pre-norm, sinusoidal positions with the sines first (Zhang et al. 2019, arXiv:1912.08777)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.families import marian
from cutaway.checkpoints.family import Family

STYLE = Style("Pegasus", pre_norm=True, positions=marian.positions)


def to_spec(config: Config) -> spec.EncoderDecoder:
    """config.json to a spec."""
    return read(config, STYLE)


def to_config(record: spec.EncoderDecoder) -> dict[str, Any]:
    """A spec to config.json."""
    return write(record, "pegasus", STYLE)


FAMILIES = (
    Family(
        ("pegasus",), spec.EncoderDecoder, to_spec, rules, to_config, prefix="model.", ignored_keys=IGNORED,
        ignored_tensors=("shared.weight",),
        generation=spec.Generation(start_id=0, stop_ids=(1,), end_forced_id=1, pad_id=0),
    ),
)  # fmt: skip
