"""Positions: counted, looked up, turned into rotations, or turned into biases on the scores."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.functions import interned

if TYPE_CHECKING:
    from cutaway.parts.step import Step


class Unplaced(nn.Module):
    """Attention without positions of its own."""

    bias_key = None  # layers with the same one have the same bias in a step

    def rotate(self, x: Tensor, step: Step) -> Tensor:
        return x

    def bias(self, step: Step, layout: str) -> Tensor | None:
        return None


class Rotary(nn.Module):
    """RoPE: the first `rotary_dim` numbers of each head turned by position * frequency, in pairs."""

    bias_key = None

    def __init__(self, record: spec.RoPE, head_dim: int) -> None:
        super().__init__()
        self.record = record
        self.rotary_dim = spec.rotary_dim(record, head_dim)
        self.whole = self.rotary_dim == head_dim
        self.key = interned(("rope", record, self.rotary_dim))

    def rotate(self, x: Float[Tensor, "B N T H"], step: Step) -> Float[Tensor, "B N T H"]:
        cos, sin = step.rotation(self.key, self.record, self.rotary_dim)
        if self.whole:
            return turn(x, cos, sin, self.record.layout)
        turned = turn(x[..., : self.rotary_dim], cos, sin, self.record.layout)
        return torch.cat((turned, x[..., self.rotary_dim :]), dim=-1)

    def matrix(self, step: Step, head_dim: int) -> Float[Tensor, "H H"]:
        """The rotation of a step's only token as a matrix: a head's vector times it is `rotate` of that vector."""
        return step.remember(("matrix", self.key, head_dim), lambda: self._matrix(step, head_dim))

    def _matrix(self, step: Step, head_dim: int) -> Tensor:
        each = torch.eye(head_dim, dtype=step.dtype, device=step.positions.device)
        return self.rotate(each[None, :, None], step)[0, :, 0]

    def bias(self, step: Step, layout: str) -> Tensor | None:
        return None


class Alibi(nn.Module):
    """ALiBi: -slope * |query position - key position| on the scores."""

    def __init__(self, record: spec.ALiBi, n_heads: int) -> None:
        super().__init__()
        self.record, self.n_heads = record, n_heads
        self.bias_key = interned((record, n_heads))

    def rotate(self, x: Tensor, step: Step) -> Tensor:
        return x

    def bias(self, step: Step, layout: str) -> Float[Tensor, "B N T S"]:
        query, key = step.positions[:, None, :, None], step.keys[layout].positions[:, None, None, :]
        slopes = torch.tensor(alibi_slopes(self.n_heads, self.record.max_bias), dtype=torch.float64, device=key.device)
        slopes = slopes[:, None, None]
        if self.record.bfloat16:  # a key's bias stands without the query's: the softmax forgets the difference
            rounded = slopes.float().bfloat16() * key.bfloat16()
            return (rounded.double() * self.record.factor).to(step.dtype)
        return (-slopes * (self.record.factor * (key - query).abs())).to(step.dtype)


class Buckets(nn.Module):
    """T5's learned bias per bucket of distance; the table is the stack's, this only reads it."""

    def __init__(self, record: spec.T5Buckets, table: BucketTable) -> None:
        super().__init__()
        self.record, self.table = record, (table,)  # in a tuple: the stack owns the table's weights
        self.bias_key = id(table)

    def rotate(self, x: Tensor, step: Step) -> Tensor:
        return x

    def bias(self, step: Step, layout: str) -> Float[Tensor, "B N T S"]:
        distance = step.keys[layout].positions[:, None, :] - step.positions[:, :, None]
        return self.table[0](t5_bucket(distance, self.record)).permute(0, 3, 1, 2)  # B N T S


class BucketTable(nn.Module):
    """One row of head biases a bucket."""

    def __init__(self, n_buckets: int, n_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_buckets, n_heads))

    def forward(self, bucket: Int[Tensor, "*B"]) -> Float[Tensor, "*B N"]:
        return nn.functional.embedding(bucket, self.weight)


Placing = Unplaced | Rotary | Alibi | Buckets


def turn(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Each pair (a, b) becomes (a cos - b sin, b cos + a sin); `sin` carries the sign of its column."""
    if layout == "halves":
        swapped = torch.cat(x.chunk(2, -1)[::-1], -1)
    else:
        swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return (x * cos).addcmul_(swapped, sin)


def rotation_tables(
    record: spec.RoPE, rotary_dim: int, positions: Int[Tensor, "B T"], lengths: Tensor, dtype: torch.dtype
) -> tuple[Float[Tensor, "B 1 T R"], Float[Tensor, "B 1 T R"]]:
    """cos and signed sin for `turn`, angles in float64; where a scaling depends on it, by the `lengths` of rows [B] or
    of each token's document [B T].
    """
    rows = lengths if lengths.dim() == 2 else lengths[:, None]
    frequency = row_frequencies(record, rotary_dim, rows)  # B T R/2, with 1 for B or T where all have the same
    angle = positions[:, :, None].double() * frequency  # B T R/2
    factor = rope_factor(record)
    cos, sin = angle.cos() * factor, angle.sin() * factor
    if record.layout == "halves":
        cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    else:
        cos, sin = cos.repeat_interleave(2, -1), torch.stack((-sin, sin), -1).flatten(-2)
    return cos.to(dtype)[:, None], sin.to(dtype)[:, None]


def row_frequencies(
    record: spec.RoPE, rotary_dim: int, lengths: Int[Tensor, "B T"]
) -> Float[Tensor, "B T R"] | Float[Tensor, "1 1 R"]:
    """Radians a position, one a pair, in float64, for rows of these lengths, whose values compiled code never sees.

    Dynamic NTK: the base times stretch^(d / (d - 2)) is each frequency times stretch^(-2i / (d - 2)).
    """

    def table(*long: bool) -> Tensor:
        frequencies = rope_frequencies if is_dynamo_compiling() else _remembered  # dynamo looks past a cache, and warns
        values = [frequencies(record, rotary_dim, each) for each in long]
        return torch.tensor(values, dtype=torch.float64, device=lengths.device).view(len(long), rotary_dim // 2)

    match record.scaling:
        case spec.DynamicScaling(factor=factor, original_length=original):
            stretch = (factor * lengths.double() / original - (factor - 1)).clamp(min=1.0)
            power = torch.arange(rotary_dim // 2, dtype=torch.float64, device=lengths.device) * -2
            return table(False) * stretch[..., None] ** (power / max(rotary_dim - 2, 1))
        case spec.LongRopeScaling(original_length=original):
            return table(False, True)[(lengths > original).long()]
    return table(False)[None]


def rope_frequencies(record: spec.RoPE, rotary_dim: int, long: bool = False) -> tuple[float, ...]:
    """Radians a position, one a pair: base^(-2i/rotary_dim), scaled as the record says for rows up to the original
    length or, with `long`, for those beyond it; but dynamic NTK, which goes by how far beyond (`row_frequencies`).
    """
    base, scaling, pairs = record.base, record.scaling, rotary_dim // 2
    plain = [base ** (-2 * i / rotary_dim) for i in range(pairs)]
    match scaling:
        case spec.LinearScaling():
            return tuple(f / scaling.factor for f in plain)
        case spec.Llama3Scaling():
            return tuple(_llama3(f, scaling) for f in plain)
        case spec.YarnScaling():
            low, high = _yarn_range(base, rotary_dim, scaling)
            return tuple(_yarn(f, i, low, high, scaling.factor) for i, f in enumerate(plain))
        case spec.LongRopeScaling():
            factors = scaling.long_factors if long else scaling.short_factors
            if len(factors) != pairs:
                raise InputError(f"longrope: {len(factors)} factors for {pairs} pairs; give one a pair")
            return tuple(f / factor for f, factor in zip(plain, factors, strict=True))
    return tuple(plain)


_remembered = lru_cache(maxsize=512)(rope_frequencies)


def rope_factor(record: spec.RoPE) -> float:
    """What cos and sin are multiplied by: 1 but for YaRN and LongRoPE."""
    scaling = record.scaling
    return spec.attention_factor(scaling) if isinstance(scaling, (spec.YarnScaling, spec.LongRopeScaling)) else 1.0


def _llama3(frequency: float, scaling: spec.Llama3Scaling) -> float:
    turns = scaling.original_length * frequency / (2 * math.pi)  # whole turns within the original length
    if turns < scaling.low_freq_factor:
        return frequency / scaling.factor
    if turns > scaling.high_freq_factor:
        return frequency
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def _yarn_range(base: float, rotary_dim: int, scaling: spec.YarnScaling) -> tuple[float, float]:
    def pair(turns: float) -> float:  # the pair that makes this many turns within the original length
        return rotary_dim * math.log(scaling.original_length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    return low, high + 0.001 if low == high else high


def _yarn(frequency: float, index: int, low: float, high: float, factor: float) -> float:
    ramp = min(max((index - low) / (high - low), 0.0), 1.0)
    return frequency * (1 - ramp) + frequency / factor * ramp


def alibi_slopes(n_heads: int, max_bias: float) -> list[float]:
    """2^(-max_bias k / n), k = 1..n, n the power of two at or above n_heads; where above, every second one first."""
    n = 2 ** math.ceil(math.log2(n_heads))
    slopes = [2.0 ** (-max_bias * k / n) for k in range(1, n + 1)]
    return slopes if n == n_heads else (slopes[1::2] + slopes[::2])[:n_heads]


def t5_bucket(distance: Int[Tensor, "*B"], record: spec.T5Buckets) -> Int[Tensor, "*B"]:
    """The bucket of key - query: exact up to half the buckets, logarithmic to max_distance, one sign each half."""
    n, bucket = record.n_buckets, torch.zeros_like(distance)
    if record.bidirectional:
        n //= 2
        bucket = (distance > 0).long() * n
        far = distance.abs()
    else:
        far = (-distance).clamp(min=0)
    exact = n // 2
    ratio = (far.clamp(min=1).double() / exact).log() / math.log(record.max_distance / exact)
    coarse = (exact + (ratio * (n - exact) + 1e-9).long()).clamp(max=n - 1)
    return bucket + torch.where(far < exact, far, coarse)
