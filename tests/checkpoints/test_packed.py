"""Packed weights in safetensors: the numbers by definition, and what is refused."""

from __future__ import annotations

import pytest
import torch

from cutaway.checkpoints.config import Config
from cutaway.checkpoints.packed import BlockFp8, Mxfp4, check_packing
from cutaway.errors import CheckpointError


class Tensors(dict):
    """Tensors in memory as a source."""

    where = "memory"

    def names(self):
        return list(self)

    def shape(self, name):
        return tuple(self[name].shape)

    def dtype(self, name):
        return self[name].dtype

    def read(self, name, out=None):
        return self[name] if out is None else out.copy_(self[name])


def e2m1(code):
    """Sign, two bits of exponent, one of mantissa."""
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, code >> 1 & 3, code & 1
    return sign * (mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1))


def test_trap_mxfp4_low_half_first_and_scale_around_127():
    experts, rows, groups = 2, 3, 2
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (experts, rows, groups, 16), dtype=torch.uint8, generator=generator)
    scales = torch.randint(110, 140, (experts, rows, groups), dtype=torch.uint8, generator=generator)
    scales[0, 0, 0], scales[1, 2, 1] = 0, 250
    source = Mxfp4(Tensors({"x_blocks": blocks, "x_scales": scales, "x_bias": torch.ones(2), "y": torch.ones(3)}))
    assert sorted(source.names()) == ["x", "x_bias", "y"] and source.dtype("x") == torch.bfloat16
    got = source.read("x")
    assert tuple(got.shape) == source.shape("x") == (experts, 32 * groups, rows)
    for e in range(experts):
        for r in range(rows):
            for column in range(32 * groups):
                group, place = divmod(column, 32)
                byte = int(blocks[e, r, group, place // 2])
                code = byte >> 4 if place % 2 else byte & 15
                assert float(got[e, column, r]) == e2m1(code) * 2.0 ** (int(scales[e, r, group]) - 127)
    assert torch.equal(source.read("x", torch.empty(got.shape)), got.float())
    assert torch.equal(source.read("y"), torch.ones(3))


@pytest.mark.parametrize(
    "tensors",
    [
        {"x_blocks": torch.zeros(2, 3, 2, 16)},
        {"x_blocks": torch.zeros(2, 3, 2, 16), "x_scales": torch.zeros(2, 3, 1)},
        {"x_blocks": torch.zeros(2, 3, 2, 8), "x_scales": torch.zeros(2, 3, 2)},
        {"x_blocks": torch.zeros(2, 3, 16), "x_scales": torch.zeros(2, 3)},
    ],
)
def test_blocks_without_fitting_scales_are_named(tensors):
    with pytest.raises(CheckpointError, match="x_blocks has shape"):
        Mxfp4(Tensors(tensors))


def test_fp8_is_multiplied_block_by_block():
    packed = torch.randn(130, 260, generator=torch.Generator().manual_seed(0)).to(torch.float8_e4m3fn)
    factors = torch.rand(2, 3, generator=torch.Generator().manual_seed(1)) + 0.1
    source = BlockFp8(Tensors({"a.weight": packed, "a.weight_scale_inv": factors, "b": torch.ones(2)}))
    assert source.names() == ["a.weight", "b"] and source.dtype("a.weight") == torch.float32
    got = source.read("a.weight")
    for row, column in [(0, 0), (127, 127), (127, 128), (128, 127), (129, 259), (5, 256)]:
        assert float(got[row, column]) == float(packed[row, column].float() * factors[row // 128, column // 128])
    with pytest.raises(CheckpointError, match="factors"):
        BlockFp8(Tensors({"a": packed, "a_scale_inv": factors[:1]})).read("a")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"quant_method": "gptq", "bits": 4}, "'gptq' are not read"),
        ({}, "None are not read"),
        ("fp8", "quantization_config is 'fp8', expected a table"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "blocks of .64, 64."),
        ({"quant_method": "fp8"}, "blocks of None"),
    ],
)
def test_other_packings_are_refused_by_name(table, message):
    with pytest.raises(CheckpointError, match=message):
        check_packing(Config({"quantization_config": table}, "test"))
