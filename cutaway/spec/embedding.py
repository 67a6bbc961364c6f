"""From ids to vectors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cutaway.spec.norms import NoNorm, Norm
from cutaway.spec.positions import AbsolutePositions, Count, NoPositions, Positive
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
    n_token_types: Annotated[int, Field(ge=0)] = 0
    positions: AbsolutePositions = NoPositions()
    norm: Norm = NoNorm()


Embedding = TokenEmbedding


def table_width(record: TokenEmbedding, d_model: int) -> int:
    """The width of the table."""
    return d_model if record.width == "d_model" else record.width


def inner_width(record: TokenEmbedding, d_model: int) -> int:
    """The width in which types and positions are added and the norm is taken."""
    return table_width(record, d_model) if record.projection == "after_norm" else d_model
