"""Weights of few bits in safetensors, shown as the plain tensors that they stand for. Written back they stay plain."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from cutaway.checkpoints.config import Config
from cutaway.checkpoints.fill import Source
from cutaway.errors import CheckpointError

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def check_packing(config: Config) -> None:
    """Raises CheckpointError where `quantization_config` names a way of packing that is not read here."""
    table = config.nullable("quantization_config") if "quantization_config" in config.data else None
    if table is None:
        return
    if not isinstance(table, dict):
        raise CheckpointError(f"{config.where}: quantization_config is {table!r}, expected a table")
    method = table.get("quant_method")
    if method not in PACKED:
        raise CheckpointError(
            f"{config.where}: weights packed by {method!r} are not read (only by {' and '.join(PACKED)}); take the "
            "model in bfloat16"
        )
    if method == "fp8" and table.get("weight_block_size") != [BlockFp8.SIZE] * 2:
        size = table.get("weight_block_size")
        raise CheckpointError(
            f"{config.where}: weights of 8 bits in blocks of {size} are not read, only of 128 by 128; take the model "
            "in bfloat16"
        )


def unpacked(source: Source, config: Config) -> Source:
    """The source with its packed tensors replaced by plain ones, each unpacked when it is read."""
    table = config.data.get("quantization_config")
    return source if table is None else PACKED[table["quant_method"]](source)


class Mxfp4:
    """`x_blocks` [E, R, G, 16] of two numbers a byte and `x_scales` [E, R, G]: x [E, 32 G, R] in bfloat16.

    A number is E2M1 times 2^(scale - 127); the low half of a byte comes first; nothing is rounded. (OCP Microscaling
    Formats 2023; the transposition is that of the plain tensors of the same name.)
    """

    def __init__(self, source: Source) -> None:
        self.source, self.where = source, source.where
        there = list(source.names())
        self.packed = {n.removesuffix("_blocks") for n in there if n.endswith("_blocks")}
        used = {name + end for name in self.packed for end in ("_blocks", "_scales")}
        self.plain = [name for name in there if name not in used]
        for name in sorted(self.packed):
            self._check(name, name + "_scales" in there)

    def _check(self, name: str, has_scales: bool) -> None:
        shape = self.source.shape(name + "_blocks")
        right = len(shape) == 4 and shape[-1] == 16 and has_scales and self.source.shape(name + "_scales") == shape[:-1]
        if not right:
            raise CheckpointError(
                f"{self.where}: {name}_blocks has shape {shape}; expected [experts, rows, groups, 16] and "
                f"{name}_scales of the same shape without its last axis"
            )

    def names(self) -> Iterable[str]:
        return [*self.plain, *sorted(self.packed)]

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.packed:
            return self.source.shape(name)
        experts, rows, groups, size = self.source.shape(name + "_blocks")
        return experts, 2 * size * groups, rows

    def drop(self) -> None:
        self.source.drop()

    def dtype(self, name: str) -> torch.dtype | None:
        return torch.bfloat16 if name in self.packed else self.source.dtype(name)

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        if name not in self.packed:
            return self.source.read(name, out)
        blocks, scales = (self.source.read(f"{name}_{kind}") for kind in ("blocks", "scales"))
        byte = torch.arange(256)
        pairs = torch.tensor(E2M1)[torch.stack((byte & 15, byte >> 4), -1)].bfloat16()  # 256 2
        powers = torch.ldexp(torch.ones(256, dtype=torch.float64), byte - 127).bfloat16()
        values = torch.empty(*blocks.shape, 2, dtype=torch.bfloat16)
        for i in range(len(blocks)):  # an expert at a time: the indices take eight bytes each
            values[i] = pairs[blocks[i].long()] * powers[scales[i].long()][..., None, None]
        plain = values.flatten(2).transpose(1, 2)
        return plain if out is None else out.copy_(plain)


class BlockFp8:
    """`x` in 8-bit floats and `x_scale_inv`, a factor for each block of rows and columns: their product in float32.

    (DeepSeek-V3 2024, arXiv:2412.19437: blocks of 128 by 128, the last ones may be cut off.)
    """

    SUFFIX, SIZE = "_scale_inv", 128

    def __init__(self, source: Source) -> None:
        self.source, self.where = source, source.where
        self.there = set(source.names())

    def names(self) -> Iterable[str]:
        return [name for name in self.source.names() if name.removesuffix(self.SUFFIX) not in self.there - {name}]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.source.shape(name)

    def drop(self) -> None:
        self.source.drop()

    def dtype(self, name: str) -> torch.dtype | None:
        return torch.float32 if name + self.SUFFIX in self.there else self.source.dtype(name)

    def read(self, name: str, out: Tensor | None = None) -> Tensor:
        if name + self.SUFFIX not in self.there:
            return self.source.read(name, out)
        packed, factors = self.source.read(name), self.source.read(name + self.SUFFIX).float()
        if packed.dim() != 2 or factors.shape != tuple(-(-n // self.SIZE) for n in packed.shape):
            raise CheckpointError(
                f"{self.where}: {name} has shape {tuple(packed.shape)} and {tuple(factors.shape)} factors; expected "
                f"one for each block of {self.SIZE} by {self.SIZE}"
            )
        for axis in (0, 1):
            factors = factors.repeat_interleave(self.SIZE, axis).narrow(axis, 0, packed.shape[axis])
        plain = packed.float() * factors
        return plain if out is None else out.copy_(plain)


PACKED: dict[str, Callable[[Source], Source]] = {"mxfp4": Mxfp4, "fp8": BlockFp8}
