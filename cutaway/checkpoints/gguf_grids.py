"""The block types of GGUF whose codes are looked up: in a table of values, or in a grid of vectors of four or eight.

The grids are fixed lists of points (the IQ types, after the E8 lattice idea of QuIP#, 2024, arXiv:2402.04396), taken
from the `gguf` package. Signs are stored apart: seven bits for eight values, the eighth sign makes their parity even.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from cutaway.checkpoints.gguf_blocks import Array, Unpack, bits, crumbs, half, nibbles
from cutaway.errors import CheckpointError

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


@cache
def grid(name: str) -> Array:
    """The points of one type as float32 [n_points, 4 or 8]. Raises CheckpointError without the package."""
    try:
        from gguf import quants
    except ImportError:
        raise CheckpointError(f"the blocks of {name} need the package gguf; install it with pip") from None
    kind = getattr(quants, name)
    kind.init_grid()
    return np.ascontiguousarray(kind.grid.reshape(kind.grid_shape), np.float32)


@cache
def parity_signs() -> Array:
    """+1 and -1 for each seven-bit code [128, 8]."""
    codes = np.arange(128, dtype=np.uint8)[:, None]
    negative = bits(codes)
    negative[:, 7] = negative[:, :7].sum(1) & 1
    return 1 - 2 * negative.astype(np.float32)


def byte_signs(packed: Array) -> Array:
    """+1 and -1 from bits of their own: [n, b] bytes into [n, b, 8]."""
    return 1 - 2 * bits(packed).astype(np.float32).reshape(*packed.shape, 8)


def words(blocks: Array, start: int, stop: int, dtype: str) -> Array:
    return blocks[:, start:stop].copy().view(dtype)


def spread(packed: Array, n_fields: int, step: int) -> Array:
    """Fields of each word, from the lowest bit on, every `step` bits: [n, w] into [n, w, n_fields]."""
    return packed[..., None] >> (np.arange(n_fields) * step).astype(packed.dtype)


def iq2_xxs(blocks: Array, out: Array) -> None:
    pairs = words(blocks, 2, 66, "<u4").reshape(-1, 8, 2)  # four points; four times seven signs and a scale
    points = grid("IQ2_XXS")[np.ascontiguousarray(pairs[..., :1]).view(np.uint8)]
    signs = parity_signs()[spread(pairs[..., 1], 4, 7) & 127]
    scale = half(blocks, 0) * (0.5 + (pairs[..., 1] >> 28).astype(np.float32)) * 0.25
    np.multiply(points * signs, scale[..., None, None], out=out.reshape(-1, 8, 4, 8))


def iq2_xs(blocks: Array, out: Array) -> None:
    codes = words(blocks, 2, 66, "<u2")  # nine bits of point, seven of signs
    scale = half(blocks, 0) * (0.5 + spread(blocks[:, 66:], 2, 4).reshape(-1, 16) % 16) * np.float32(0.25)
    values = grid("IQ2_XS")[codes & 511] * parity_signs()[codes >> 9]
    np.multiply(values.reshape(-1, 16, 16), scale[..., None], out=out.reshape(-1, 16, 16))


def iq2_s(blocks: Array, out: Array) -> None:
    upper = spread(blocks[:, 66:74], 4, 2).reshape(-1, 32) & 3
    points = grid("IQ2_S")[blocks[:, 2:34] | upper.astype(np.uint16) << 8]
    scale = half(blocks, 0) * (0.5 + spread(blocks[:, 74:], 2, 4).reshape(-1, 16) % 16) * np.float32(0.25)
    values = points * byte_signs(blocks[:, 34:66])
    np.multiply(values.reshape(-1, 16, 16), scale[..., None], out=out.reshape(-1, 16, 16))


def iq3_xxs(blocks: Array, out: Array) -> None:
    extra = words(blocks, 66, 98, "<u4")  # four times seven signs, and a scale
    points = grid("IQ3_XXS")[blocks[:, 2:66]].reshape(-1, 8, 4, 8)
    scale = half(blocks, 0) * (0.5 + (extra >> 28).astype(np.float32)) * 0.5
    np.multiply(
        points * parity_signs()[spread(extra, 4, 7) & 127], scale[..., None, None], out=out.reshape(points.shape)
    )


def iq3_s(blocks: Array, out: Array) -> None:
    upper = bits(blocks[:, 66:74]).astype(np.uint16)
    points = grid("IQ3_S")[blocks[:, 2:66] | upper << 8].reshape(-1, 8, 4, 8)
    scale = half(blocks, 0) * (1 + 2 * (spread(blocks[:, 106:], 2, 4).reshape(-1, 8) & 15).astype(np.float32))
    values = points * byte_signs(blocks[:, 74:106]).reshape(points.shape)
    np.multiply(values, scale[..., None, None], out=out.reshape(points.shape))


def iq1_s(blocks: Array, out: Array) -> None:
    extra = words(blocks, 34, 50, "<u2")  # four times three upper bits, three bits of scale, the sign of the shift
    codes = blocks[:, 2:34].reshape(-1, 8, 4) | (spread(extra, 4, 3) & 7) << 8
    scale = half(blocks, 0) * (2 * (extra >> 12 & 7).astype(np.float32) + 1)
    shift = np.where(extra >> 15, np.float32(-0.125), np.float32(0.125))
    values = grid("IQ1_S")[codes] + shift[..., None, None]
    np.multiply(values, scale[..., None, None], out=out.reshape(values.shape))


def iq1_m(blocks: Array, out: Array) -> None:
    scales = words(blocks, 48, 56, "<u2")  # the upper four bits of each make up the float16 of the block
    d = (scales >> 12 << np.array([0, 4, 8, 12], np.uint16)).sum(1, dtype=np.uint16)[:, None].view(np.float16)
    scale = d.astype(np.float32) * (2 * (spread(scales, 4, 3) & 7).astype(np.float32) + 1).reshape(-1, 16)
    extra = spread(blocks[:, 32:48], 2, 4).reshape(-1, 32)
    codes = blocks[:, :32] | (extra & 7).astype(np.uint16) << 8
    shift = np.where(extra & 8, np.float32(-0.125), np.float32(0.125))
    values = (grid("IQ1_M")[codes] + shift[..., None]).reshape(-1, 16, 16)
    np.multiply(values, scale[..., None], out=out.reshape(values.shape))


def iq4_nl(blocks: Array, out: Array) -> None:
    np.multiply(IQ4_VALUES[nibbles(blocks[:, 2:])], half(blocks, 0), out=out)


def iq4_xs(blocks: Array, out: Array) -> None:
    upper = spread(words(blocks, 2, 4, "<u2"), 8, 2).reshape(-1, 8) & 3
    lower = spread(blocks[:, 4:8], 2, 4).reshape(-1, 8) & 15
    scale = half(blocks, 0) * ((lower | upper << 4).astype(np.float32) - 32)
    values = IQ4_VALUES[nibbles(blocks[:, 8:].reshape(-1, 8, 16))]
    np.multiply(values, scale[..., None], out=out.reshape(values.shape))


def tq1_0(blocks: Array, out: Array) -> None:
    """Five values of three kinds a byte: a byte b stands for b/256 in base 3, read from the front."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]
    start = 0
    for first, last, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        rest = blocks[:, None, first:last] * powers[:digits]  # wraps: what is left after the digits before
        values = (rest.astype(np.uint16) * 3 >> 8).reshape(len(blocks), -1)
        out[:, start : start + values.shape[1]] = values
        start += values.shape[1]
    out -= 1
    out *= half(blocks, 52)


def tq2_0(blocks: Array, out: Array) -> None:
    out[:] = crumbs(blocks[:, :64]).reshape(out.shape)
    out -= 1
    out *= half(blocks, 64)


def mxfp4(blocks: Array, out: Array) -> None:
    """Elements E2M1, one power of two (E8M0, 2^(e - 127)) for 32 of them (OCP Microscaling Formats, 2023)."""
    half_scale = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    np.multiply(TWICE_E2M1[nibbles(blocks[:, 1:])], half_scale, out=out)


def nvfp4(blocks: Array, out: Array) -> None:
    """Elements E2M1, one unsigned E4M3 for 16 of them."""
    code = blocks[:, :4].astype(np.int32)
    exponent, mantissa = code >> 3 & 15, (code & 7).astype(np.float32)
    half_scale = np.where(exponent, np.ldexp(1 + mantissa / 8, exponent - 8), np.ldexp(mantissa, -10))
    half_scale[code == 127] = 0  # the code for NaN
    values = TWICE_E2M1[nibbles(blocks[:, 4:].reshape(-1, 4, 8))]
    np.multiply(values, half_scale[..., None], out=out.reshape(values.shape))


UNPACK: dict[str, Unpack] = {
    "IQ2_XXS": iq2_xxs, "IQ2_XS": iq2_xs, "IQ2_S": iq2_s, "IQ3_XXS": iq3_xxs, "IQ3_S": iq3_s, "IQ1_S": iq1_s,
    "IQ1_M": iq1_m, "IQ4_NL": iq4_nl, "IQ4_XS": iq4_xs, "TQ1_0": tq1_0, "TQ2_0": tq2_0, "MXFP4": mxfp4, "NVFP4": nvfp4,
}  # fmt: skip
