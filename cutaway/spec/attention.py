"""Attention: who looks at whom, with how many heads, and how scores become weights."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from cutaway.spec.norms import LayerNorm, Norm, RMSNorm
from cutaway.spec.positions import Count, Natural, NoPositions, Positive, RelativePositions
from cutaway.spec.record import Record

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]


class FullMask(Record):
    """Every query sees every key of its row."""

    kind: Literal["full"] = "full"


class CausalMask(Record):
    """Query i sees keys j <= i."""

    kind: Literal["causal"] = "causal"


class PrefixMask(Record):
    """As causal, and every query sees the whole prefix (Raffel et al. 2019, arXiv:1910.10683)."""

    kind: Literal["prefix"] = "prefix"


class SlidingMask(Record):
    """Query i sees the `window` keys i - window < j <= i, itself among them."""

    kind: Literal["sliding"] = "sliding"
    window: Count


class TwoSidedMask(Record):
    """Query i sees the keys with |i - j| <= half_width."""

    kind: Literal["two_sided"] = "two_sided"
    half_width: Natural


class ChunkedMask(Record):
    """Query i sees the keys j <= i of its own chunk of `size` positions."""

    kind: Literal["chunked"] = "chunked"
    size: Count


Mask = Annotated[
    FullMask | CausalMask | PrefixMask | SlidingMask | TwoSidedMask | ChunkedMask, Field(discriminator="kind")
]


class NoQKNorm(Record):
    """Queries and keys are used as projected."""

    kind: Literal["none"] = "none"


class QKNorm(Record):
    """q and k normalised before rotation, over each head or over the whole width (Henry et al. 2020, arXiv:2010.04245).

    `gain` shared: one vector for all heads; per_head: a vector for each. Over the width it is one vector that long.
    """

    kind: Literal["qk_norm"] = "qk_norm"
    norm: Annotated[LayerNorm | RMSNorm, Field(discriminator="kind")] = RMSNorm()
    over: Literal["head", "width"] = "head"
    gain: Literal["shared", "per_head"] = "shared"


QueryKeyNorm = Annotated[NoQKNorm | QKNorm, Field(discriminator="kind")]


class NoAttention(Record):
    """The branch gives 0, so x passes."""

    kind: Literal["no_attn"] = "no_attn"


class MultiHead(Record):
    """softmax(q k^T * scale) v per head, joined and projected (Vaswani et al. 2017, arXiv:1706.03762).

    n_kv_heads below n_heads is grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245), 1 is multi-query
    (Shazeer 2019, arXiv:1911.02150): query head n reads key head n // (n_heads / n_kv_heads). Order: project, QK-norm,
    clip, rotate. `scale` auto is 1/sqrt(head_dim). `share_kv` names the earlier layer whose keys and values are read
    instead of own ones. `sinks`: a learned logit a head joins the softmax and its weight is dropped.
    """

    kind: Literal["multi_head"] = "multi_head"
    n_heads: Count
    n_kv_heads: Count | Literal["n_heads"] = "n_heads"
    head_dim: Count | Literal["auto"] = "auto"
    value_dim: Count | Literal["head_dim"] = "head_dim"
    mask: Mask = CausalMask()
    positions: RelativePositions = NoPositions()
    scale: Positive | Literal["auto"] = "auto"
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: QueryKeyNorm = NoQKNorm()
    clip: Positive | Literal["none"] = "none"
    soft_cap: Positive | Literal["none"] = "none"
    sinks: bool = False
    output_gate: Literal["none", "per_head", "per_element"] = "none"
    share_kv: Natural | Literal["none"] = "none"


class Latent(Record):
    """Keys and values rebuilt from one narrow latent (DeepSeek-V2 2024, arXiv:2405.04434).

    A head's query and key have `nope_dim` numbers without position and `rope_dim` rotated ones; the rotated key is
    shared by all heads. The cache holds the latent and the rotated key alone. `scale` auto: 1/sqrt(nope + rope).
    """

    kind: Literal["latent"] = "latent"
    n_heads: Count
    q_rank: Count | Literal["none"] = "none"
    kv_rank: Count
    nope_dim: Count
    rope_dim: Count
    value_dim: Count
    mask: Mask = CausalMask()
    positions: RelativePositions = NoPositions()
    scale: Positive | Literal["auto"] = "auto"
    q_norm: Norm = RMSNorm()
    kv_norm: Norm = RMSNorm()
    down_bias: bool = False
    o_bias: bool = False


class Cross(Record):
    """Queries from the decoder, keys and values from the encoder's output; no mask but padding, no positions."""

    kind: Literal["cross"] = "cross"
    n_heads: Count
    n_kv_heads: Count | Literal["n_heads"] = "n_heads"
    head_dim: Count | Literal["auto"] = "auto"
    value_dim: Count | Literal["head_dim"] = "head_dim"
    scale: Positive | Literal["auto"] = "auto"
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: QueryKeyNorm = NoQKNorm()
    soft_cap: Positive | Literal["none"] = "none"


class NoCross(Record):
    """The branch gives 0, so x passes."""

    kind: Literal["no_cross"] = "no_cross"


class Sizes(NamedTuple):
    """The numbers of an attention with every `auto` worked out."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_dim: int
    scale: float


def sizes(part: MultiHead | Cross | Latent, d_model: int) -> Sizes:
    """Heads, widths and the factor on the scores; a Latent counts its rotated and plain numbers as one head."""
    if isinstance(part, Latent):
        width = part.nope_dim + part.rope_dim
        return Sizes(part.n_heads, part.n_heads, width, part.value_dim, _scale(part.scale, width))
    width = d_model // part.n_heads if part.head_dim == "auto" else part.head_dim
    return Sizes(
        n_heads=part.n_heads,
        n_kv_heads=part.n_heads if part.n_kv_heads == "n_heads" else part.n_kv_heads,
        head_dim=width,
        value_dim=width if part.value_dim == "head_dim" else part.value_dim,
        scale=_scale(part.scale, width),
    )


def _scale(scale: float | str, head_dim: int) -> float:
    return head_dim**-0.5 if isinstance(scale, str) else float(scale)
