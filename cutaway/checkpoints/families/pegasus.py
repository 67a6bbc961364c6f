"""PEGASUS: pre-norm, sinusoidal positions with the sines first (Zhang et al. 2019, arXiv:1912.08777)."""

from __future__ import annotations

from functools import partial

from cutaway import spec
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.families import marian
from cutaway.checkpoints.family import Family

STYLE = Style("pegasus", "Pegasus", pre_norm=True, positions=marian.positions)

FAMILIES = (
    Family(
        ("pegasus",), spec.EncoderDecoder, partial(read, style=STYLE), rules, partial(write, style=STYLE),
        prefix="model.", ignored_keys=IGNORED,
        ignored_tensors=("shared.weight",),
        generation=spec.Generation(start_id=0, stop_ids=(1,), end_forced_id=1, pad_id=0),
    ),
)  # fmt: skip
