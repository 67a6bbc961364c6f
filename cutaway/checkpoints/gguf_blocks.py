"""Weights in blocks, as GGUF stores them: the table of types, and blocks -> float32.

A block holds `size` consecutive values of a row in `n_bytes` bytes: small integers q, and one or two numbers of 16 bits
that scale them, x = d*q or x = d*q + m. The K types have 256 values to a block and quantise the scales once more. The
types whose values come from a table of vectors are in `gguf_grids`.

Format: ggml, the library under llama.cpp (its `block_*` structures); there is no paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

Array = np.ndarray
Unpack = Callable[[Array, Array], None]
"""Blocks as uint8 [n, n_bytes] are unpacked into float32 [n, size]."""

CHUNK = 1 << 17
"""Values worked on at a time: 512 KB of output, which stays in the second-level cache through all the steps."""


@dataclass(frozen=True)
class BlockType:
    """One way to store values: its number in a file, and how many values lie in how many bytes."""

    name: str
    id: int
    size: int
    n_bytes: int


BY_NAME = {
    kind.name: kind
    for kind in (
        BlockType("F32", 0, 1, 4), BlockType("F16", 1, 1, 2), BlockType("BF16", 30, 1, 2),
        BlockType("F64", 28, 1, 8), BlockType("I8", 24, 1, 1), BlockType("I16", 25, 1, 2),
        BlockType("I32", 26, 1, 4), BlockType("I64", 27, 1, 8), BlockType("Q4_0", 2, 32, 18),
        BlockType("Q4_1", 3, 32, 20), BlockType("Q5_0", 6, 32, 22), BlockType("Q5_1", 7, 32, 24),
        BlockType("Q8_0", 8, 32, 34), BlockType("Q2_K", 10, 256, 84),
        BlockType("Q3_K", 11, 256, 110), BlockType("Q4_K", 12, 256, 144), BlockType("Q5_K", 13, 256, 176),
        BlockType("Q6_K", 14, 256, 210), BlockType("IQ2_XXS", 16, 256, 66),
        BlockType("IQ2_XS", 17, 256, 74), BlockType("IQ3_XXS", 18, 256, 98), BlockType("IQ1_S", 19, 256, 50),
        BlockType("IQ4_NL", 20, 32, 18), BlockType("IQ3_S", 21, 256, 110), BlockType("IQ2_S", 22, 256, 82),
        BlockType("IQ4_XS", 23, 256, 136), BlockType("IQ1_M", 29, 256, 56), BlockType("TQ1_0", 34, 256, 54),
        BlockType("TQ2_0", 35, 256, 66), BlockType("MXFP4", 39, 32, 17), BlockType("NVFP4", 40, 64, 36),
    )
}  # fmt: skip
BY_ID = {kind.id: kind for kind in BY_NAME.values()}


def dequantize(raw: Array, kind: BlockType, out: Array | None = None) -> Array:
    """The values of whole blocks as float32, flat, in `out` when it is given (contiguous float32 of that many values).

    Besides the output it needs a few times 512 KB, however large the tensor is.

    Raises ValueError when the bytes are not whole blocks or the output does not fit.
    """
    flat = raw.reshape(-1).view(np.uint8)
    n, rest = divmod(flat.size, kind.n_bytes)
    if rest:
        raise ValueError(f"{flat.size} bytes are no whole blocks of {kind.name} ({kind.n_bytes} bytes each)")
    if out is None:
        out = np.empty(n * kind.size, np.float32)
    if out.dtype != np.float32 or out.size != n * kind.size or not out.flags.c_contiguous:
        raise ValueError(f"the output must be contiguous float32 of {n * kind.size} values")
    unpack = _unpacker(kind)
    blocks, values = flat.reshape(n, kind.n_bytes), out.reshape(n, kind.size)
    step = CHUNK // kind.size
    for start in range(0, n, step):
        unpack(blocks[start : start + step], values[start : start + step])
    return out.reshape(-1)


def _unpacker(kind: BlockType) -> Unpack:
    if kind.name in UNPACK:
        return UNPACK[kind.name]
    from cutaway.checkpoints import gguf_grids  # the rarer types, and the tables that they need

    return gguf_grids.UNPACK[kind.name]


def plain(dtype: torch.dtype) -> Unpack:
    def unpack(blocks: Array, out: Array) -> None:
        torch.from_numpy(out).copy_(torch.from_numpy(blocks.copy()).view(dtype))

    return unpack


def half(blocks: Array, start: int) -> Array:
    """The float16 numbers at a byte offset of each block, as float32 [n, 1]."""
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def scale(values: Array, factor: Array) -> None:
    torch.from_numpy(values).mul_(torch.from_numpy(factor))  # three times as fast as NumPy on rows this short


def shift(values: Array, term: Array) -> None:
    torch.from_numpy(values).add_(torch.from_numpy(term))


def nibbles(packed: Array) -> Array:
    """[..., b] bytes into [..., 2b] values: first the lower four bits of all, then the upper four."""
    width = packed.shape[-1]
    packed = np.ascontiguousarray(packed)
    codes = np.empty((*packed.shape[:-1], 2 * width), np.uint8)
    np.bitwise_and(packed, 15, out=codes[..., :width])
    np.right_shift(packed, 4, out=codes[..., width:])
    return codes


def bits(packed: Array) -> Array:
    """[n, b] bytes into [n, 8b] zeros and ones, the lowest bit first."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def q4_0(blocks: Array, out: Array) -> None:
    out[:] = nibbles(blocks[:, 2:])
    out -= 8
    scale(out, half(blocks, 0))


def q4_1(blocks: Array, out: Array) -> None:
    out[:] = nibbles(blocks[:, 4:])
    scale(out, half(blocks, 0))
    shift(out, half(blocks, 2))


def q5_0(blocks: Array, out: Array) -> None:
    out[:] = nibbles(blocks[:, 6:]) | bits(blocks[:, 2:6]) << 4
    out -= 16
    scale(out, half(blocks, 0))


def q5_1(blocks: Array, out: Array) -> None:
    out[:] = nibbles(blocks[:, 8:]) | bits(blocks[:, 4:8]) << 4
    scale(out, half(blocks, 0))
    shift(out, half(blocks, 2))


def q8_0(blocks: Array, out: Array) -> None:
    out[:] = np.ascontiguousarray(blocks[:, 2:]).view(np.int8)
    scale(out, half(blocks, 0))


def crumbs(packed: Array) -> Array:
    """Two bits a value, 32 bytes -> 128 values: bits 0-1 of all 32 first, then 2-3, 4-5, 6-7 [n, halves, 4, 32]."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return packed.reshape(len(packed), -1, 1, 32) >> shifts & 3


def q2_k(blocks: Array, out: Array) -> None:
    scales = blocks[:, :16]
    x = out.reshape(-1, 16, 16)
    x[:] = crumbs(blocks[:, 16:80]).reshape(x.shape)
    scale(x, (half(blocks, 80) * (scales & 15))[:, :, None])
    shift(x, -(half(blocks, 82) * (scales >> 4))[:, :, None])


def q3_k(blocks: Array, out: Array) -> None:
    n = len(blocks)
    low, high = blocks[:, 96:104], blocks[:, None, 104:108] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    scales = (nibbles(low) | high.reshape(n, 16) << 4).view(np.int8) - np.int8(32)
    third = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # n 8 32, one bit a value
    x = out.reshape(n, 16, 16)
    x[:] = (crumbs(blocks[:, 32:96]).reshape(n, 8, 32) | third << 2).reshape(x.shape)
    x -= 4
    scale(x, (half(blocks, 108) * scales)[:, :, None])


def scales_and_mins(packed: Array) -> tuple[Array, Array]:
    """Eight scales and eight minima of six bits each, out of the twelve bytes of Q4_K and Q5_K."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    mins = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, mins


def _scale_k(blocks: Array, codes: Array, out: Array) -> None:
    scales, mins = scales_and_mins(blocks[:, 4:16])
    x = out.reshape(-1, 8, 32)
    x[:] = codes.reshape(x.shape)
    scale(x, (half(blocks, 0) * scales)[:, :, None])
    shift(x, -(half(blocks, 2) * mins)[:, :, None])


def q4_k(blocks: Array, out: Array) -> None:
    _scale_k(blocks, nibbles(blocks[:, 16:].reshape(-1, 4, 32)), out)


def q5_k(blocks: Array, out: Array) -> None:
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # n 8 32
    codes = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    _scale_k(blocks, codes | fifth << 4, out)


def q6_k(blocks: Array, out: Array) -> None:
    n = len(blocks)
    low = nibbles(blocks[:, :128].reshape(n, 2, 64)).reshape(n, 2, 4, 32)
    x = out.reshape(n, 16, 16)
    x[:] = (low | crumbs(blocks[:, 128:192]) << 4).reshape(x.shape)
    x -= 32
    scale(x, (half(blocks, 208) * blocks[:, 192:208].view(np.int8))[:, :, None])


UNPACK: dict[str, Unpack] = {
    "F32": plain(torch.float32), "F16": plain(torch.float16), "BF16": plain(torch.bfloat16),
    "F64": plain(torch.float64), "I8": plain(torch.int8), "I16": plain(torch.int16), "I32": plain(torch.int32),
    "I64": plain(torch.int64),
    "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0,
    "Q2_K": q2_k, "Q3_K": q3_k, "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k,
}  # fmt: skip
