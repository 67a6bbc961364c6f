"""Normalisation of a vector, and its absence."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cutaway.spec.record import Record

Eps = Annotated[float, Field(ge=0.0, le=1.0)]


class NoNorm(Record):
    """The identity: nothing is normalised and nothing is learned."""

    kind: Literal["none"] = "none"


class LayerNorm(Record):
    """(x - mean) / sqrt(var + eps) * gain + shift, over the last axis (Ba et al. 2016, arXiv:1607.06450)."""

    kind: Literal["layernorm"] = "layernorm"
    eps: Eps = 1e-5
    gain: bool = True
    shift: bool = True


class RMSNorm(Record):
    """x / sqrt(mean(x^2) + eps) * gain (Zhang and Sennrich 2019, arXiv:1910.07467); `one_plus` learns gain - 1."""

    kind: Literal["rmsnorm"] = "rmsnorm"
    eps: Eps = 1e-6
    gain: Literal["plain", "one_plus", "none"] = "plain"


Norm = Annotated[NoNorm | LayerNorm | RMSNorm, Field(discriminator="kind")]
