"""mBART: BART in pre-norm form, with a norm after each stack (Liu et al. 2020, arXiv:2001.08210)."""

from __future__ import annotations

from functools import partial

from cutaway import spec
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.families import bart
from cutaway.checkpoints.family import Family

STYLE = Style("mbart", "MBart", pre_norm=True, positions=bart.positions, embedding_norm=True)

FAMILIES = (
    Family(
        ("mbart",), spec.EncoderDecoder, partial(read, style=STYLE), rules, partial(write, style=STYLE),
        prefix="model.", ignored_keys=IGNORED,
        ignored_tensors=("*coder.version", "shared.weight"),
        generation=spec.Generation(stop_ids=(2,), end_forced_id=2, pad_id=1),
    ),
)  # fmt: skip
