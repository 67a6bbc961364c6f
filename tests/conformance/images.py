"""Encoders of small images: what they are made of is that of an encoder of ids."""

from __future__ import annotations

from typing import Any

from cutaway import spec as s
from cutaway.spec.pairs import Pair


def images(maker: Any, pair: Pair, common: dict[str, Any]) -> s.ImageEncoder:
    """One spec by the choices of a strategies.Maker; `common` has the fields that every model has."""
    pick, stack = maker.pick, maker.stack(pair, "encoder")
    rows, columns, (height, width) = pick((2, 1, 3)), pick((3, 1, 2)), pick(((2, 2), (1, 3), (3, 2)))
    places = stack["embedding"].positions
    if isinstance(places, s.Sinusoidal) and maker.d_model % 2:
        places = places.replace(frequencies="paper")
    if not isinstance(places, s.NoPositions):
        places = places.replace(counted=pick((s.FromMask(), s.ByColumn())))
    return s.ImageEncoder(
        **common, layers=stack["layers"], final_norm=stack["final_norm"],
        embedding=s.PatchEmbedding(
            image_height=rows * height, image_width=columns * width, patch_height=height, patch_width=width,
            n_channels=pick((3, 1)), bias=pick((True, False)), class_token=pick((True, False)), positions=places,
            norm=pick((s.NoNorm(), maker.norm())),
        ),
        head=maker.pooling(pick(("classes", "vectors")), ("first", "mean", "last", "none")),
    )  # fmt: skip
