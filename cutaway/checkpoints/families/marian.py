"""Marian: post-norm, sinusoidal positions, sines first (Junczys-Dowmunt et al. 2018, arXiv:1804.00344)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.family import Family


def positions(config: Config) -> spec.Sinusoidal | spec.Learned:
    """Sines first, then cosines; where a file stores the table, that is what is read."""
    if config.holds("*encoder.embed_positions.weight", False):
        return spec.Learned(n_positions=config.integer("max_position_embeddings"), counted=spec.ByColumn())
    return spec.Sinusoidal(layout="halves", counted=spec.ByColumn())


STYLE = Style("marian", "Marian", pre_norm=False, positions=positions, writes="MTModel")


def to_spec(config: Config) -> spec.EncoderDecoder:
    """config.json to a spec."""
    return read(config, STYLE)


def to_config(record: spec.EncoderDecoder) -> dict[str, Any]:
    """A spec to config.json."""
    out = write(record, STYLE)
    shared = record.shared_embedding
    return out | {"share_encoder_decoder_embeddings": shared, "decoder_vocab_size": record.decoder.vocab_size}


FAMILIES = (
    Family(
        ("marian",), spec.EncoderDecoder, to_spec, rules, to_config, prefix="model.", ignored_keys=IGNORED,
        generation=spec.Generation(start_id=58100, stop_ids=(0,), end_forced_id=0, pad_id=58100),
    ),
)  # fmt: skip
