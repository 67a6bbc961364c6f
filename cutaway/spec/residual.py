"""How a branch joins the stream: x + scale * f(x), or without the sum."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cutaway.spec.record import Record


class Add(Record):
    """skip + scale * f (He et al. 2015, arXiv:1512.03385).

    `skip` is x itself or the normed input. `scale` is a number, a learned `scalar`, or a learned vector, one number
    a `channel` (Touvron et al. 2021, arXiv:2103.17239).
    """

    kind: Literal["add"] = "add"
    scale: float | Literal["scalar", "channel"] = 1.0
    skip: Literal["x", "normed"] = "x"


class NoResidual(Record):
    """The stream becomes f alone: what the branch does not carry is lost."""

    kind: Literal["none"] = "none"


Residual = Annotated[Add | NoResidual, Field(discriminator="kind")]
