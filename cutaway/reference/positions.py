"""Where a token stands: tables added to the embedding, rotations of q and k, and biases of the scores."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cutaway.errors import InputError
from cutaway.reference.functions import Array, real

Ints = NDArray[np.int64]


# Counting. Each function gives positions [B, T]; what padding gets is never looked at, but is always a legal row.


def count_from_mask(mask: ArrayLike) -> Ints:
    """The number of real tokens before each token of its row, so that padding on either side moves nothing."""
    return np.maximum(np.cumsum(np.asarray(mask).astype(np.int64), -1) - 1, 0)


def count_in_documents(owners: ArrayLike) -> Ints:
    """The number of earlier tokens of the same owner, for rows that hold several documents. owners [B, T]."""
    return _earlier(np.asarray(owners)).sum(-1)


def count_columns(shape: tuple[int, int]) -> Ints:
    """The column of each token, padding counted."""
    return np.broadcast_to(np.arange(shape[1], dtype=np.int64), shape)


def count_from_ids(ids: ArrayLike, pad_id: int, offset: int, owners: ArrayLike = 0) -> Ints:
    """Rows of a table: offset + number of earlier ids other than pad_id; a pad takes the row pad_id itself.

    With owners [B, T] each document counts its own.
    """
    is_token = np.asarray(ids) != pad_id
    earlier = _earlier(np.broadcast_to(owners, is_token.shape)) & is_token[:, None, :]
    return np.where(is_token, offset + earlier.sum(-1), pad_id)


def _earlier(owners: np.ndarray) -> np.ndarray:
    """Whether token j comes before token i in the document of i, [B, T, T]."""
    return np.tril(owners[:, :, None] == owners[:, None, :], -1)


# Tables.


def sinusoidal_frequencies(width: int, base: float = 10000.0, closed: bool = False) -> Array:
    """One frequency a pair of columns: base^(-2i/width) (arXiv:1706.03762), or base^(-i/(width/2 - 1)) when closed.

    The closed form is fairseq's: its slowest pair has exactly the frequency 1/base; one pair alone has frequency 1.
    An odd width has a last sine without its cosine in the paper's form, and no pair for its last column when closed.
    """
    if closed:
        n_pairs = width // 2
        return base ** (-np.arange(n_pairs) / max(n_pairs - 1, 1))
    return base ** (-2 * np.arange((width + 1) // 2) / width)


def sinusoidal(
    positions: ArrayLike, width: int, layout: str = "interleaved", base: float = 10000.0, closed: bool = False
) -> Array:
    """sin and cos of position * frequency. positions [...] -> [..., width].

    interleaved: columns sin, cos, sin, cos ...; halves: all sines, then all cosines.
    An odd width leaves out the last cosine; in the closed form its last column is 0.
    """
    angles = real(positions)[..., None] * sinusoidal_frequencies(width, base, closed)
    n_sines, n_cosines = angles.shape[-1], width // 2
    table = np.zeros((*angles.shape[:-1], width))
    sines, cosines = slice(0, 2 * n_sines, 2), slice(1, 2 * n_cosines, 2)
    if layout == "halves":
        sines, cosines = slice(0, n_sines), slice(n_sines, n_sines + n_cosines)
    table[..., sines], table[..., cosines] = np.sin(angles), np.cos(angles[..., :n_cosines])
    return table


def learned(table: ArrayLike, rows: Ints) -> Array:
    """table[row]. table [n, D], rows [B, T] -> [B, T, D]. Raises InputError for a row that the table has not."""
    table = real(table)
    if rows.size and (rows.max() >= len(table) or rows.min() < 0):
        raise InputError(f"position table: rows {rows.min()} to {rows.max()} of {len(table)}; shorten the input")
    return table[rows]


# Rotation (RoPE, arXiv:2104.09864). A scaling is a function that gives other frequencies [rotary_dim / 2].


def rope_frequencies(rotary_dim: int, base: ArrayLike = 10000.0) -> Array:
    """base^(-2i/rotary_dim), radians a position, one a pair; a base a row [B, 1] gives [B, pairs]."""
    if rotary_dim % 2:
        raise InputError(f"RoPE turns pairs of numbers: rotary_dim {rotary_dim} must be even")
    return real(base) ** (-np.arange(0, rotary_dim, 2) / rotary_dim)


def linear_frequencies(rotary_dim: int, base: float, factor: float) -> Array:
    """All divided by the factor: positions squeezed into the trained length (arXiv:2306.15595)."""
    return rope_frequencies(rotary_dim, base) / factor


def dynamic_frequencies(rotary_dim: int, base: float, factor: float, original: int, length: ArrayLike) -> Array:
    """NTK-aware: base * (factor L / original - factor + 1)^(d/(d-2)) once a row's length L passes the original one.

    length [B] -> [B, pairs].
    """
    stretch = factor * np.maximum(real(length), original) / original - (factor - 1)
    power = rotary_dim / (rotary_dim - 2) if rotary_dim > 2 else 0.0  # one pair has frequency 1 whatever the base
    return rope_frequencies(rotary_dim, base * stretch[..., None] ** power)


def yarn_frequencies(
    rotary_dim: int, base: float, factor: float, original: int, ramp: tuple[float, float, bool]
) -> Array:
    """Fast pairs kept, slow ones divided by the factor, a linear ramp between (arXiv:2309.00071).

    ramp = (beta_fast, beta_slow, truncate): the turns within the original length at which the ramp begins and ends;
    truncate rounds both ends outwards to whole pairs.
    """
    beta_fast, beta_slow, truncate = ramp
    low, high = (
        rotary_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    width = (high - low) or 0.001
    slow = np.clip((np.arange(rotary_dim // 2) - low) / width, 0.0, 1.0)
    kept = rope_frequencies(rotary_dim, base)
    return kept * (1 - slow) + kept / factor * slow


def yarn_attention_factor(factor: float, mscale: float = 0.0, mscale_all_dim: float = 0.0) -> float:
    """What cos and sin are multiplied by: m(1), or m(mscale) / m(mscale_all_dim) where both are given.

    m(a) = 0.1 a ln(factor) + 1, and 1 for a factor up to 1.
    """

    def m(a: float) -> float:
        return 0.1 * a * math.log(factor) + 1.0 if factor > 1 else 1.0

    return m(mscale) / m(mscale_all_dim) if mscale and mscale_all_dim else m(1.0)


def llama3_frequencies(
    rotary_dim: int, base: float, factor: float, original: int, bounds: tuple[float, float]
) -> Array:
    """Wavelengths above original/low divided by the factor, those below original/high kept, blended between.

    bounds = (low, high) frequency factors. (Llama 3.1, arXiv:2407.21783.)
    """
    low, high = bounds
    kept = rope_frequencies(rotary_dim, base)
    turns = original * kept / (2 * math.pi)  # original / wavelength
    keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return keep * kept + (1 - keep) * kept / factor


def longrope_frequencies(
    rotary_dim: int, base: float, factors: tuple[ArrayLike, ArrayLike], original: int, length: ArrayLike
) -> Array:
    """Each pair divided by its own number: factors = (short, long), long for rows beyond the original length.

    length [B] -> [B, pairs]. (arXiv:2402.13753.)
    """
    short, long = (real(f) for f in factors)
    divisors = np.where(np.asarray(length)[..., None] > original, long, short)
    return rope_frequencies(rotary_dim, base) / divisors


def longrope_attention_factor(factor: float, original: int) -> float:
    """sqrt(1 + ln(factor) / ln(original)), and 1 for a factor up to 1."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def rotate(x: ArrayLike, angles: ArrayLike, layout: str = "interleaved", factor: float = 1.0) -> Array:
    """Each pair (a, b) turned counter-clockwise: (a cos - b sin, a sin + b cos), times the attention factor.

    x [..., H], angles in radians [..., P] for the P pairs of the first 2P numbers; the rest passes through.
    interleaved pairs (2i, 2i+1); halves pairs (i, i+P).
    """
    x, angles = real(x), real(angles)
    n_pairs = angles.shape[-1]
    first, second = slice(0, 2 * n_pairs, 2), slice(1, 2 * n_pairs, 2)
    if layout == "halves":
        first, second = slice(0, n_pairs), slice(n_pairs, 2 * n_pairs)
    a, b = x[..., first], x[..., second]
    cos, sin = factor * np.cos(angles), factor * np.sin(angles)
    y = np.broadcast_to(x, (*np.broadcast_shapes(x.shape[:-1], angles.shape[:-1]), x.shape[-1])).copy()
    y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
    return y


# Biases of the scores.


def to_bfloat16(x: ArrayLike) -> Array:
    """x rounded to the nearest bfloat16 (8 bits of precision, ties to even)."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def alibi_slopes(n_heads: int, max_bias: float = 8.0) -> Array:
    """2^(-max_bias k / n) for k = 1..n where n is a power of two (arXiv:2108.12409).

    Otherwise those of the power of two below n, then every second slope of the power above it.
    """
    below = 2 ** int(math.log2(n_heads))
    slopes = 2.0 ** (-max_bias * np.arange(1, below + 1) / below)
    between = 2.0 ** (-max_bias * np.arange(1, 2 * below, 2) / (2 * below))
    return np.concatenate([slopes, between])[:n_heads]


def alibi(slopes: ArrayLike, query: ArrayLike, key: ArrayLike, factor: float = 1.0) -> Array:
    """-slope * |query - key| * factor. slopes [N], positions [B, T] and [B, S] -> [B, N, T, S]."""
    distance = np.abs(real(query)[:, None, :, None] - real(key)[:, None, None, :])
    return -real(slopes)[:, None, None] * distance * factor


def alibi_bfloat16(slopes: ArrayLike, key: ArrayLike, factor: float = 1.0) -> Array:
    """slope * key position * factor, slope, position and product each rounded to bfloat16 -> [B, N, 1, S].

    In a causal softmax it is the distance form but for that rounding, which grows with the position.
    """
    return to_bfloat16(to_bfloat16(slopes)[:, None, None] * to_bfloat16(key)[:, None, None, :]) * factor


def t5_buckets(relative: ArrayLike, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = False) -> Ints:
    """The bucket of relative = key - query position (arXiv:1910.10683).

    The first half of the buckets are single distances, the others grow with the logarithm up to max_distance; a
    distance exactly on a border belongs to the upper bucket. Bidirectional: half of all buckets are for keys ahead.
    """
    relative = np.asarray(relative)
    if bidirectional:
        n_buckets //= 2
        side, distance = np.where(relative > 0, n_buckets, 0), np.abs(relative)
    else:
        side, distance = np.zeros_like(relative), np.maximum(-relative, 0)
    exact = n_buckets // 2
    if not 0 < exact < max_distance:
        raise InputError(f"T5 buckets: {exact} single distances, max_distance {max_distance}; need 0 < single < max")
    steps = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact) * (n_buckets - exact)
    far = exact + np.floor(steps + 1e-9).astype(np.int64)  # a border is met in spite of the rounding of log
    return side + np.where(distance < exact, distance, np.minimum(far, n_buckets - 1))


def t5_bias(table: ArrayLike, buckets: Ints) -> Array:
    """table[bucket] for each head. table [n_buckets, N], buckets [B, T, S] -> [B, N, T, S]."""
    return np.moveaxis(real(table)[buckets], -1, 1)
