"""Blenderbot: pre-norm, learned positions (Roller et al. 2020, arXiv:2004.13637)."""

from __future__ import annotations

from functools import partial

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.family import Family


def positions(config: Config) -> spec.Learned:
    return spec.Learned(n_positions=config.integer("max_position_embeddings"), counted=spec.ByColumn())


STYLE = Style("blenderbot", "Blenderbot", pre_norm=True, positions=positions)

FAMILIES = (
    Family(
        ("blenderbot",), spec.EncoderDecoder, partial(read, style=STYLE), rules, partial(write, style=STYLE),
        prefix="model.",
        ignored_keys=IGNORED | {
            "layernorm_variant": "the class says so", "do_blenderbot_90_layernorm": "the class says so",
        },
        ignored_tensors=("*coder.version", "shared.weight"),
        generation=spec.Generation(start_id=1, stop_ids=(2,), end_forced_id=2, pad_id=0),
    ),
)  # fmt: skip
