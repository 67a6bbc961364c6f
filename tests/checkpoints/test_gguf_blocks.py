from __future__ import annotations

import json
import sys
import tracemalloc

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import load_file

from cutaway.checkpoints.gguf_blocks import BY_ID, BY_NAME, dequantize
from cutaway.checkpoints.gguf_quantize import WRITABLE, quantize

GIVEN = [
    "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS",
    "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4", "NVFP4",
]  # fmt: skip
BLOCKS = [name for name in WRITABLE if name.startswith("Q")]
LEVELS = {"Q8_0": 127, "Q4_0": 8, "Q5_0": 16, "Q4_1": 15, "Q5_1": 31}
rows = arrays.arrays(np.float32, (3, 64), elements=st.floats(-100, 100, width=32))


@pytest.fixture(scope="session")
def blocks(shared):
    folder = shared / "cases" / "given" / "gguf"
    return load_file(folder / "dequant.safetensors"), json.loads((folder / "dequant.json").read_text())


def test_the_list_of_given_types_is_whole(blocks):
    assert sorted(GIVEN) == sorted(name for name, entry in blocks[1].items() if isinstance(entry, dict))


@pytest.mark.parametrize("name", GIVEN)
def test_values_equal_the_given_ones(blocks, name):
    arrays_, table = blocks
    kind = BY_ID[table[name]["ggml_type_id"]]
    assert (kind.name, kind.size, kind.n_bytes) == (name, table[name]["block"], table[name]["bytes"])
    values = dequantize(arrays_[name + ".raw"], kind)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, arrays_[name + ".float"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_types_agree_with_the_gguf_package(name):
    kind = BY_NAME[name]
    other = gguf.GGMLQuantizationType[name]
    assert (kind.id, (kind.size, kind.n_bytes)) == (other.value, gguf.GGML_QUANT_SIZES[other])


@pytest.mark.parametrize("name", GIVEN)
def test_any_bytes_give_what_the_gguf_package_gives(name):
    # not only blocks that a quantiser would write: every scale, sign and code, infinite and NaN scales too
    kind = BY_NAME[name]
    raw = np.random.default_rng(5).integers(0, 256, (3000, kind.n_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        ours = dequantize(raw, kind)
        other = raw.view(np.float16) if name == "F16" else raw
        theirs = gguf.quants.dequantize(other, gguf.GGMLQuantizationType[name]).reshape(-1)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("name", ["Q4_1", "Q8_0", "Q6_K", "IQ3_S"])
def test_a_large_tensor_needs_little_besides_its_output(name):
    kind = BY_NAME[name]
    raw = np.zeros((40_000_000 // kind.size, kind.n_bytes), np.uint8)
    out = np.empty(raw.shape[0] * kind.size, np.float32)
    dequantize(raw[:1], kind)  # tables are loaded once
    tracemalloc.start()
    try:
        dequantize(raw, kind, out)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert not out.any()


def test_chunks_join_without_a_seam():
    kind = BY_NAME["Q8_0"]
    raw = np.random.default_rng(0).integers(0, 256, (10_000, 34), dtype=np.uint8)
    raw[:, 1] = 0x20
    whole = dequantize(raw, kind).reshape(10_000, 32)
    expected = raw[:, 2:].view(np.int8) * raw[:, :2].copy().view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(whole, expected)


def test_wrong_sizes_are_refused():
    kind = BY_NAME["Q4_0"]
    with pytest.raises(ValueError, match="no whole blocks"):
        dequantize(np.zeros(19, np.uint8), kind)
    for out in (np.empty(31, np.float32), np.empty(32, np.float64), np.empty(64, np.float32)[::2]):
        with pytest.raises(ValueError, match="contiguous float32 of 32"):
            dequantize(np.zeros(18, np.uint8), kind, out)
    with pytest.raises(ValueError, match="no whole blocks"):
        quantize(np.zeros(33, np.float32), kind)
    with pytest.raises(NotImplementedError, match="can be written: F32, F16"):
        quantize(np.zeros(256, np.float32), BY_NAME["Q4_K"])


@pytest.mark.parametrize("name", WRITABLE)
@settings(max_examples=50, deadline=None)
@given(x=rows)
def test_rounding_is_bounded_and_settles(name, x):
    kind = BY_NAME[name]
    once = dequantize(quantize(x, kind), kind).reshape(x.shape)
    blocks = x.reshape(-1, 32)
    if name in BLOCKS:
        top = np.abs(blocks).max(1) if name[-1] == "0" else blocks.max(1) - blocks.min(1)
        step = top / LEVELS[name]
        # half a step, a whole one at the end that has no code of its own (7 of -8..7), and float16's own rounding
        bound = step * (0.5 if name in ("Q8_0", "Q4_1", "Q5_1") else 1.0) + np.abs(blocks).max(1) * 2e-3 + 2e-6
        assert (np.abs(once.reshape(-1, 32) - blocks) <= bound[:, None]).all()
    else:
        np.testing.assert_allclose(once, x, rtol={"F32": 0, "F16": 5e-4, "BF16": 4e-3}[name], atol=6e-8)
    twice = dequantize(quantize(once, kind), kind).reshape(x.shape)
    np.testing.assert_allclose(twice, once, rtol=0, atol=np.abs(x).max() * (2e-3 if name in BLOCKS else 0))


@pytest.mark.parametrize("name", WRITABLE)
def test_bytes_equal_those_of_the_gguf_package(name):
    x = np.random.default_rng(1).standard_normal((500, 256)).astype(np.float32)
    x[3] = 0
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(quantize(x, BY_NAME[name]), theirs)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("evil", [np.nan, np.inf, -np.inf, 3e38])
def test_values_that_a_type_cannot_hold_are_refused(name, evil):
    x = np.ones(64, np.float32)
    x[40] = evil
    with pytest.raises(ValueError, match="not finite in this type"):
        quantize(x, BY_NAME[name])


def test_float16_overflow_is_refused():
    with pytest.raises(ValueError, match="too large"):
        quantize(np.array([1, 70000], np.float32), BY_NAME["F16"])


def test_a_grid_without_its_package_is_named(monkeypatch):
    from cutaway.checkpoints import gguf_grids
    from cutaway.errors import CheckpointError

    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match="IQ3_S need the package gguf"):
        gguf_grids.grid.__wrapped__("IQ3_S")
