"""Where a token stands: absolute positions (added to the embedding) and relative ones (inside an attention)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from cutaway.spec.record import Record

MOST = 2**63 - 1
"""What an axis of a tensor can count."""
Count = Annotated[int, Field(ge=1, le=MOST)]
Natural = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[float, Field(gt=0.0)]


class FromMask(Record):
    """Position = number of real tokens before this one in its row; padding on either side moves nothing."""

    kind: Literal["mask"] = "mask"


class ByColumn(Record):
    """Position = column of the token in the batch, padding counted."""

    kind: Literal["column"] = "column"


class FromIds(Record):
    """Position = number of earlier ids other than `pad_id`; a pad token itself takes the row `pad_id`."""

    kind: Literal["ids"] = "ids"
    pad_id: Natural


Counting = Annotated[FromMask | ByColumn | FromIds, Field(discriminator="kind")]


class NoPositions(Record):
    """Nothing tells the positions apart."""

    kind: Literal["none"] = "none"


class Sinusoidal(Record):
    """sin and cos of position * frequency (Vaswani et al. 2017, arXiv:1706.03762).

    `interleaved` puts sin, cos in neighbouring columns, `halves` all sines first. `paper`: base^(-2i/d); `closed`:
    base^(-i/(d/2-1)), as fairseq has it, whose row `pad_id` is zero when positions are counted from ids.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = "interleaved"
    frequencies: Literal["paper", "closed"] = "paper"
    base: Positive = 10000.0
    offset: Natural = 0
    counted: Counting = FromMask()


class Learned(Record):
    """Row `position + offset` of a learned table of `n_positions + offset` rows."""

    kind: Literal["learned"] = "learned"
    n_positions: Count
    offset: Natural = 0
    counted: Counting = FromMask()


AbsolutePositions = Annotated[NoPositions | Sinusoidal | Learned, Field(discriminator="kind")]


class NoScaling(Record):
    """Frequencies base^(-2i/rotary_dim) as they are."""

    kind: Literal["none"] = "none"


class LinearScaling(Record):
    """Every frequency divided by `factor` (Chen et al. 2023, arXiv:2306.15595)."""

    kind: Literal["linear"] = "linear"
    factor: Positive


class DynamicScaling(Record):
    """NTK-aware base that grows with the length once it passes `original_length`."""

    kind: Literal["dynamic"] = "dynamic"
    factor: Positive
    original_length: Count


class YarnScaling(Record):
    """Slow pairs interpolated, fast ones kept, a ramp between (Peng et al. 2023, arXiv:2309.00071).

    cos and sin are multiplied by `attention_factor`; `auto` is 0.1 ln(factor) + 1, or the ratio
    of the factors that `mscale` and `mscale_all_dim` give where both are above 0.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Positive
    original_length: Count
    attention_factor: Positive | Literal["auto"] = "auto"
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    truncate: bool = True
    mscale: Annotated[float, Field(ge=0.0)] = 0.0
    mscale_all_dim: Annotated[float, Field(ge=0.0)] = 0.0


class Llama3Scaling(Record):
    """Wavelengths beyond original_length/low_freq_factor divided by `factor`, short ones kept, blended between."""

    kind: Literal["llama3"] = "llama3"
    factor: Positive
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    original_length: Count


class LongRopeScaling(Record):
    """One divisor a pair, from `short_factors` up to `original_length` tokens and `long_factors` beyond it.

    (Ding et al. 2024, arXiv:2402.13753.) `attention_factor` `auto`: sqrt(1 + ln(factor) / ln(original_length)).
    """

    kind: Literal["longrope"] = "longrope"
    short_factors: tuple[Positive, ...]
    long_factors: tuple[Positive, ...]
    original_length: Count
    factor: Positive
    attention_factor: Positive | Literal["auto"] = "auto"


def attention_factor(scaling: YarnScaling | LongRopeScaling) -> float:
    """What cos and sin are multiplied by, with every `auto` worked out."""
    if scaling.attention_factor != "auto":
        return scaling.attention_factor
    if isinstance(scaling, LongRopeScaling):
        if scaling.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(scaling.factor) / math.log(scaling.original_length))
    if scaling.mscale and scaling.mscale_all_dim:
        return yarn_mscale(scaling.factor, scaling.mscale) / yarn_mscale(scaling.factor, scaling.mscale_all_dim)
    return yarn_mscale(scaling.factor, 1.0)


def yarn_mscale(factor: float, mscale: float) -> float:
    """0.1 mscale ln(factor) + 1, and 1 for factors up to 1."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


RopeScaling = Annotated[
    NoScaling | LinearScaling | DynamicScaling | YarnScaling | Llama3Scaling | LongRopeScaling,
    Field(discriminator="kind"),
]


class RoPE(Record):
    """Pairs of q and k turned by position * frequency (Su et al. 2021, arXiv:2104.09864).

    Only the first `rotary_dim` numbers of a head turn. `interleaved` pairs (2i, 2i+1), `halves` pairs (i, i + d/2).
    """

    kind: Literal["rope"] = "rope"
    base: Positive = 10000.0
    rotary_dim: Count | Literal["head"] = "head"
    layout: Literal["interleaved", "halves"] = "interleaved"
    scaling: RopeScaling = NoScaling()


class ALiBi(Record):
    """-slope * |query - key| * factor on the scores, slopes 2^(-max_bias k / N) (Press et al. 2021, arXiv:2108.12409).

    With `bfloat16` slope, key position and product are each rounded to bfloat16, as some checkpoints were trained.
    """

    kind: Literal["alibi"] = "alibi"
    max_bias: Positive = 8.0
    factor: Positive = 1.0
    bfloat16: bool = False


class T5Buckets(Record):
    """A learned bias per head and bucket of key - query distance (Raffel et al. 2019, arXiv:1910.10683).

    One table a stack, read by every layer that names it.
    """

    kind: Literal["t5"] = "t5"
    n_buckets: Annotated[int, Field(ge=2)] = 32
    max_distance: Count = 128
    bidirectional: bool = False


def rotary_dim(record: RoPE, head_dim: int) -> int:
    """How many numbers of a head turn."""
    return head_dim if record.rotary_dim == "head" else record.rotary_dim


RelativePositions = Annotated[NoPositions | RoPE | ALiBi | T5Buckets, Field(discriminator="kind")]
