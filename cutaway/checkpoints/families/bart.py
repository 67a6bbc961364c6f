"""BART: post-norm, learned positions from row 2 on, a norm on the embedding (Lewis et al. 2019, arXiv:1910.13461)."""

from __future__ import annotations

from functools import partial

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoder_decoders import IGNORED, Style, read, rules, write
from cutaway.checkpoints.family import Family


def positions(config: Config) -> spec.Learned:
    """The first two rows of the table are never read."""
    return spec.Learned(n_positions=config.integer("max_position_embeddings"), offset=2, counted=spec.ByColumn())


STYLE = Style("bart", "Bart", pre_norm=False, positions=positions, embedding_norm=True, n_classes=3)

FAMILIES = (
    Family(
        ("bart",), spec.EncoderDecoder, partial(read, style=STYLE), rules, partial(write, style=STYLE),
        prefix="model.", ignored_keys=IGNORED,
        ignored_tensors=("*coder.version", "shared.weight"),
        generation=spec.Generation(start_id=2, stop_ids=(2,), end_forced_id=2, pad_id=1),
    ),
)  # fmt: skip
