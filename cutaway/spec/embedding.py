"""From ids, or from images, to vectors."""

from __future__ import annotations

from typing import Literal

from cutaway.spec.norms import NoNorm, Norm
from cutaway.spec.positions import AbsolutePositions, Count, Natural, NoPositions, Positive
from cutaway.spec.record import Record


class TokenEmbedding(Record):
    """dropout(norm(factor * table[id] + types[type] + position)), projected where its width is not d_model.

    `projection` none: the width is d_model. `before_positions`: factor * (table[id] W), then positions of d_model
    (OPT); `after_norm`: everything in the narrow width, projected last (ELECTRA).
    """

    kind: Literal["token"] = "token"
    width: Count | Literal["d_model"] = "d_model"
    projection: Literal["none", "before_positions", "after_norm"] = "none"
    projection_bias: bool = False
    factor: Positive | Literal["sqrt_d_model"] = 1.0
    n_token_types: Natural = 0
    positions: AbsolutePositions = NoPositions()
    norm: Norm = NoNorm()


class PatchEmbedding(Record):
    """dropout(norm(W patch + b + position)): the patches of an image row by row, a learned vector before them.

    (Dosovitskiy et al. 2020, arXiv:2010.11929.) A patch is n_channels * patch_height * patch_width numbers, its
    channels one after another. `class_token`: whether there is that vector; it has the first position.
    """

    kind: Literal["patch"] = "patch"
    image_height: Count
    image_width: Count
    patch_height: Count
    patch_width: Count
    n_channels: Count = 3
    bias: bool = True
    class_token: bool = True
    positions: AbsolutePositions = NoPositions()
    norm: Norm = NoNorm()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self.n_channels, self.image_height, self.image_width

    @property
    def n_tokens(self) -> int:
        """How many vectors an image becomes."""
        n_patches = (self.image_height // self.patch_height) * (self.image_width // self.patch_width)
        return n_patches + self.class_token

    @property
    def patch_size(self) -> int:
        """How many numbers a patch has."""
        return self.n_channels * self.patch_height * self.patch_width


Embedding = TokenEmbedding


def table_width(record: TokenEmbedding, d_model: int) -> int:
    """The width of the table."""
    return d_model if record.width == "d_model" else record.width


def inner_width(record: TokenEmbedding, d_model: int) -> int:
    """The width in which types and positions are added and the norm is taken."""
    return table_width(record, d_model) if record.projection == "after_norm" else d_model
