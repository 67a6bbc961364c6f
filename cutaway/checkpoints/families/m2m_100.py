"""M2M-100 and NLLB: pre-norm, sinusoids of fairseq's form counted from the ids (Fan et al. 2020, arXiv:2010.11125)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.family import Family
from cutaway.errors import CheckpointError


def positions(config: Config) -> spec.Sinusoidal:
    """A pad token gets no position; the first other one stands in the row after the pad id's."""
    pad = config.integer("pad_token_id", 1)
    counted = spec.FromIds(pad_id=pad)
    return spec.Sinusoidal(layout="halves", frequencies="closed", offset=pad + 1, counted=counted)


STYLE = Style("m2m_100", "M2M100", pre_norm=True, positions=positions, logits_bias=False)


def to_spec(config: Config) -> spec.EncoderDecoder:
    """config.json to a spec."""
    return read(config, STYLE)


def to_config(record: spec.EncoderDecoder) -> dict[str, Any]:
    """A spec to config.json."""
    out = write(record, STYLE)
    places = record.encoder.embedding.positions
    if not isinstance(places, spec.Sinusoidal) or not isinstance(places.counted, spec.FromIds):
        raise CheckpointError("a model whose positions are not counted from the ids does not fit this family")
    return out | {"pad_token_id": places.counted.pad_id}


FAMILIES = (
    Family(
        ("m2m_100",), spec.EncoderDecoder, to_spec, rules, to_config, prefix="model.", ignored_keys=IGNORED,
        ignored_tensors=("*coder.embed_positions.weight*", "*coder.version", "shared.weight"),
        generation=spec.Generation(start_id=2, stop_ids=(2,), pad_id=1),
    ),
)  # fmt: skip
