"""float32 -> blocks, by the plain rules of ggml: scales from the extreme values, then each value is rounded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from cutaway.checkpoints.gguf_blocks import CHUNK, Array, BlockType

Pack = Callable[[Array], Array]
"""Float32 [n, size] is packed into uint8 [n, n_bytes]."""


def quantize(values: Array, kind: BlockType) -> Array:
    """Float32 values (whole rows, any shape) as stored bytes, flat uint8.

    Symmetric types (Q8_0, Q4_0, Q5_0): d = the value farthest from 0, over the code at that end; q = x/d rounded.
    Types with a minimum (Q4_1, Q5_1): d = (max - min) / largest code; q = (x - min)/d rounded.
    Values that came out of such blocks come out the same again.

    Raises ValueError when the values are not whole blocks, not finite, or too large for float16 where that is needed;
    NotImplementedError for a type that is only read.
    """
    if kind.name not in PACK:
        raise NotImplementedError(f"{kind.name} can be read but not written; can be written: {', '.join(WRITABLE)}")
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    n, rest = divmod(flat.size, kind.size)
    if rest:
        raise ValueError(f"{flat.size} values are no whole blocks of {kind.size} ({kind.name})")
    blocks, raw = flat.reshape(n, kind.size), np.empty((n, kind.n_bytes), np.uint8)
    step = CHUNK // kind.size
    for start in range(0, n, step):
        raw[start : start + step] = PACK[kind.name](blocks[start : start + step])
    return raw.reshape(-1)


def finite(numbers: Array, what: str) -> Array:
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what} is not finite in this type: a value is NaN, infinite, or too large for it")
    return numbers


def plain(dtype: torch.dtype) -> Pack:
    def pack(x: Array) -> Array:
        stored = torch.from_numpy(x).to(dtype)
        if torch.isinf(stored).any() and np.isfinite(x).all():
            raise ValueError(f"a value of up to {np.abs(x).max():g} is too large for {dtype}")
        return stored.view(torch.uint8).numpy()

    return pack


def half(numbers: Array) -> Array:
    with np.errstate(over="ignore"):
        return finite(numbers.astype("<f2"), "the scale of a block").view(np.uint8)


def inverse(d: Array) -> Array:
    return np.divide(1, d, out=np.zeros_like(d), where=np.abs(d) > 1e-38)  # smaller ones are 0 in float16


def nibbles(codes: Array) -> Array:
    """Codes of a block -> bytes: the first half of the codes in the lower four bits, the second half above them."""
    middle = codes.shape[1] // 2
    return codes[:, :middle] & 15 | codes[:, middle:] << 4


def fifth_bits(codes: Array) -> Array:
    return np.packbits(codes >> 4, axis=1, bitorder="little")


def codes_of(x: Array, largest: int) -> Array:
    return np.minimum(np.trunc(x, dtype=np.float32), largest).astype(np.uint8)


def q8_0(x: Array) -> Array:
    d = np.abs(x).max(1, keepdims=True) / 127
    scaled = x * inverse(finite(d, "a value"))
    just_under_half = np.float32(0.49999997)  # so that rounding half away from 0 is exact
    q = np.trunc(scaled + np.copysign(just_under_half, scaled)).astype(np.int8)
    return np.concatenate([half(d), q.view(np.uint8)], axis=1)


def _symmetric(x: Array, levels: int) -> tuple[Array, Array]:
    extreme = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    d = finite(extreme, "a value") / -levels  # the farthest value gets code 0
    return d, codes_of(x * inverse(d) + np.float32(levels + 0.5), 2 * levels - 1)


def _from_minimum(x: Array, largest: int) -> tuple[Array, Array, Array]:
    low = x.min(1, keepdims=True)
    d = finite((x.max(1, keepdims=True) - low) / largest, "a value")
    return d, low, codes_of((x - low) * inverse(d) + np.float32(0.5), largest)


def q4_0(x: Array) -> Array:
    d, q = _symmetric(x, 8)
    return np.concatenate([half(d), nibbles(q)], axis=1)


def q5_0(x: Array) -> Array:
    d, q = _symmetric(x, 16)
    return np.concatenate([half(d), fifth_bits(q), nibbles(q)], axis=1)


def q4_1(x: Array) -> Array:
    d, low, q = _from_minimum(x, 15)
    return np.concatenate([half(d), half(low), nibbles(q)], axis=1)


def q5_1(x: Array) -> Array:
    d, low, q = _from_minimum(x, 31)
    return np.concatenate([half(d), half(low), fifth_bits(q), nibbles(q)], axis=1)


PACK: dict[str, Pack] = {
    "F32": plain(torch.float32), "F16": plain(torch.float16), "BF16": plain(torch.bfloat16),
    "Q8_0": q8_0, "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1,
}  # fmt: skip
WRITABLE = tuple(PACK)
"""The names of the types that can be written."""
