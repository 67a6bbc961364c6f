from __future__ import annotations

import json
import math
import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.checkpoints.gguf import GGUF, Field
from cutaway.checkpoints.gguf_blocks import BY_NAME
from cutaway.checkpoints.gguf_quantize import quantize
from cutaway.checkpoints.gguf_write import Stored, field, write_gguf
from cutaway.errors import CheckpointError


def stored(name: str, values: torch.Tensor, kind: str) -> Stored:
    block = BY_NAME[kind]
    return Stored(name, tuple(values.shape), block, lambda: quantize(values.numpy(), block))


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(name: str = "w", shape=(32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def key(name: str, kind: int, data: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + data


def build(*parts: bytes, tensors: int = 0, fields: int = 0, version: int = 3, data: int = 0) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", version, tensors, fields) + b"".join(parts)
    return head + bytes(-len(head) % 32) + bytes(data)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "magic": (b"GGML" + bytes(100), "not a GGUF file"),
    "pickle": (b"PK\x03\x04" + bytes(100), "pickled"),
    "safetensors": (struct.pack("<Q", 50) + b'{"a":1}' + bytes(90), "safetensors"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    "version 1": (build(version=1), "version 1 is not known"),
    "version 9": (build(version=9), "version 9 is not known"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "tensors 2^63": (build(tensors=2**63), "number of tensors"),
    "tensors 2^40": (build(tensors=2**40), "number of tensors"),
    "fields 2^63": (build(fields=2**63), "number of fields"),
    "key length 2^63": (build(struct.pack("<Q", 2**63), bytes(64), fields=1), "length of the key"),
    "key length 2^64-1": (build(struct.pack("<Q", 2**64 - 1), bytes(64), fields=1), "length of the key"),
    "empty key": (build(key("", 4, bytes(4)), fields=1), "has 0 characters"),
    "key not UTF-8": (build(text(b"\xff\xfe"), struct.pack("<II", 4, 4), fields=1), "not UTF-8"),
    "string length": (build(key("a", 8, struct.pack("<Q", 2**62)), bytes(64), fields=1), "length of 'a'"),
    "string not UTF-8": (build(key("a", 8, text(b"\xc3(")), bytes(64), fields=1), "not UTF-8"),
    "unknown type": (build(key("a", 77, bytes(8)), fields=1), "type 77"),
    "bad bool": (build(key("a", 7, b"\x07"), fields=1), "neither true nor false"),
    "numbers 2^61": (build(key("a", 9, struct.pack("<IQ", 4, 2**61)), bytes(64), fields=1), "length of 'a'"),
    "strings 2^61": (build(key("a", 9, struct.pack("<IQ", 8, 2**61)), bytes(64), fields=1), "length of 'a'"),
    "nested lists": (build(key("a", 9, struct.pack("<IQ", 9, 1)), bytes(64), fields=1), "items of type 9"),
    "item past the end": (
        build(key("a", 9, struct.pack("<IQQ", 8, 2, 1) + b"x" + struct.pack("<Q", 2**60)), bytes(64), fields=1),
        "past the file's end",
    ),
    "duplicate key": (build(key("a", 4, bytes(4)), key("a", 4, bytes(4)), fields=2), "'a' is there twice"),
    "duplicate tensor": (build(entry(), entry(offset=128), tensors=2, data=256), "'w' is there twice"),
    "overlap": (build(entry("a"), entry("b", offset=64), tensors=2, data=256), "a and b overlap"),
    "same offset": (build(entry("a"), entry("b"), tensors=2, data=256), "overlap"),
    "misaligned": (build(entry(offset=4), tensors=1, data=256), "no multiple of the alignment"),
    "past the end": (build(entry(shape=(33,)), tensors=1, data=128), "has only"),
    "offset 2^63": (build(entry(offset=2**63), tensors=1, data=128), "has only"),
    "shape 2^63": (build(entry(shape=(2**63, 2**63)), tensors=1, data=128), "has only"),
    "zero dimension": (build(entry(shape=(0,)), tensors=1, data=128), "whole blocks"),
    "no dimension": (build(entry(shape=()), tensors=1, data=128), "0 dimensions"),
    "five dimensions": (build(entry(shape=(2,) * 5), tensors=1, data=128), "5 dimensions"),
    "2^32-1 dimensions": (build(text("w"), struct.pack("<I", 2**32 - 1), bytes(64), tensors=1), "dimensions"),
    "half a block": (build(entry(shape=(48, 2), kind=2), tensors=1, data=128), "whole blocks of 32"),
    "unknown block type": (build(entry(kind=999), tensors=1, data=128), "type 999"),
    "removed block type": (build(entry(kind=4), tensors=1, data=128), "type 4"),
    "a type for products only": (build(entry(kind=9), tensors=1, data=128), "type 9"),
    "nameless tensor": (build(entry(""), tensors=1, data=128), "has 0 characters"),
    "alignment 0": (build(key("general.alignment", 4, bytes(4)), fields=1), "alignment is 0"),
    "alignment 48": (build(key("general.alignment", 4, struct.pack("<I", 48)), fields=1), "alignment is 48"),
    "alignment 2^31": (build(key("general.alignment", 4, struct.pack("<I", 2**31)), fields=1), "alignment is"),
    "alignment text": (
        build(key("general.alignment", 8, text("32")), fields=1),
        "general.alignment is no whole number",
    ),
    "split": (build(key("split.count", 2, struct.pack("<H", 3)), fields=1), "one of several parts"),
    "split text": (build(key("split.count", 8, text("many")), fields=1), "split.count"),
}


@pytest.fixture
def bounded():
    """Nothing here may take a second, or 200 MB."""
    tracemalloc.start()
    start = time.perf_counter()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.perf_counter() - start < 1
    assert peak < 20 << 20


@pytest.mark.parametrize("name", HOSTILE)
def test_garbled_files_are_refused_by_name(tmp_path, bounded, name):
    data, message = HOSTILE[name]
    path = tmp_path / "evil.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        GGUF(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert ";" in str(caught.value)  # what is wrong; what to do


def test_a_flood_of_empty_strings_is_refused(tmp_path, bounded):
    n = 3 << 20
    path = tmp_path / "evil.gguf"
    with path.open("wb") as file:
        file.write(build(key("a", 9, struct.pack("<IQ", 8, n)), fields=1)[:53])
        file.truncate(8 * n + 4096)
    with pytest.raises(CheckpointError, match="at most 2097152 are accepted"):
        GGUF(path)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.gguf: No such file"):
        GGUF(tmp_path / "nothing.gguf")
    with pytest.raises(CheckpointError, match="directory"):
        GGUF(tmp_path)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.gguf"
    torch.manual_seed(0)
    tensors = [
        stored("norm", torch.randn(32), "F32"), stored("a", torch.randn(4, 64), "Q4_1"),
        stored("b", torch.randn(3, 5, 32), "Q8_0"), stored("c", torch.randn(7, 3), "F16"),
    ]  # fmt: skip
    fields = {"general.architecture": field("llama"), "tokens": field(["a", "é", ""]), "n": field(3)}
    write_gguf(path, fields, tensors)
    return path


@pytest.mark.parametrize("sixteenth", range(16))
def test_files_cut_at_each_sixteenth_are_refused(small, bounded, sixteenth):
    data = small.read_bytes()
    small.write_bytes(data[: len(data) * sixteenth // 16])
    with pytest.raises(CheckpointError):
        GGUF(small)


def test_no_cut_and_no_changed_byte_of_the_header_gives_another_error(small):
    data = small.read_bytes()
    end = min(info.start for info in GGUF(small).tensors.values())
    rng = np.random.default_rng(0)
    for cut in range(end):
        small.write_bytes(data[:cut])
        with pytest.raises(CheckpointError):
            GGUF(small)
    for at in range(end):
        garbled = bytearray(data)
        garbled[at] = rng.integers(256)
        small.write_bytes(garbled)
        try:
            file = GGUF(small)
        except CheckpointError:
            continue
        for name in file.tensors:
            file.read(name)


def test_the_gguf_package_reads_what_we_write(small):
    reader = gguf.GGUFReader(small)
    ours = GGUF(small)
    assert [t.name for t in reader.tensors] == list(ours.tensors)
    for tensor in reader.tensors:
        info = ours.tensors[tensor.name]
        assert tuple(int(n) for n in tensor.shape) == info.shape[::-1]
        assert (tensor.tensor_type.name, tensor.data_offset) == (info.kind.name, info.start)
        np.testing.assert_array_equal(tensor.data.view(np.uint8).reshape(-1), ours.raw(tensor.name).reshape(-1))
    assert reader.fields["tokens"].contents() == ["a", "é", ""]


def test_we_read_what_the_gguf_package_writes(tmp_path):
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    x = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    values = {"u8": 7, "i8": -7, "u16": 9, "i16": -9, "u32": 2**31, "i32": -5, "u64": 2**60, "i64": -(2**60)}
    for name, value in values.items():
        getattr(writer, f"add_{name.replace('u', 'uint').replace('i', 'int').replace('uintnt', 'uint')}")(name, value)
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("s", "größe")
    writer.add_array("list", [1.5, 2.5])
    writer.add_tensor("x", x)
    writer.add_tensor(
        "q", gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUF(path)
    assert {name: file.values[name] for name in values} == values
    assert file.values["f32"] == np.float32(0.1)
    assert file.values["f64"] == 0.1
    assert file.values["yes"] is True
    assert file.values["s"] == "größe"
    assert list(file.values["list"]) == [1.5, 2.5]
    np.testing.assert_array_equal(file.read("x").numpy(), x)
    assert np.abs(file.read("q").numpy() - x).max() < np.abs(x).max() / 127


SCALAR = st.one_of(
    st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.integers(-(2**63), 2**64 - 1),
    st.floats(width=32, allow_nan=False),
)  # fmt: skip
VALUE = (
    SCALAR | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4) | st.lists(st.text("añ", max_size=3), max_size=4)
)


@settings(max_examples=60, deadline=None)
@given(values=st.dictionaries(st.text("abc.", min_size=1, max_size=9), VALUE, max_size=6), seed=st.integers(0, 99))
def test_what_is_written_is_read_and_written_again_alike(tmp_path_factory, values, seed):
    path = tmp_path_factory.getbasetemp() / "round.gguf"
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"], 3)
    shapes = [(*rng.integers(1, 4, rng.integers(0, 4)), 32) for _ in kinds]
    tensors = [
        stored(f"t{i}", torch.tensor(rng.standard_normal(shape), dtype=torch.float32), kind)
        for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))
    ]
    write_gguf(path, {name: field(value) for name, value in values.items()}, tensors)
    file = GGUF(path)
    for name, value in values.items():
        assert (list(file.values[name]) if isinstance(value, list) else file.values[name]) == value
    assert [(i.name, i.shape, i.kind.name) for i in file.tensors.values()] == [
        (f"t{i}", tuple(map(int, shape)), kind) for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))
    ]
    again = path.with_name("again.gguf")
    copies = [Stored(i.name, i.shape, i.kind, lambda name=i.name: file.raw(name)) for i in file.tensors.values()]
    write_gguf(again, file.fields, copies)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_reading_into_a_given_tensor(small, dtype):
    file = GGUF(small)
    for name, info in file.tensors.items():
        out = torch.empty(info.shape, dtype=dtype)
        assert file.read(name, out) is out
        torch.testing.assert_close(out, file.read(name).to(dtype), rtol=0, atol=0)
    with pytest.raises(CheckpointError, match=r"norm has the shape \(32,\), but \(31,\)"):
        file.read("norm", torch.empty(31))
    with pytest.raises(CheckpointError, match="no tensor 'x'"):
        file.read("x")


def test_plain_tensors_are_not_copied_and_never_change_the_file(small):
    before = small.read_bytes()
    file = GGUF(small)
    first, second = file.read("norm"), file.read("norm")
    assert first.data_ptr() == second.data_ptr()
    first.add_(1)
    assert torch.equal(first, second)
    assert small.read_bytes() == before


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (stored("x" * 64, torch.ones(32), "F32"), "longer than the 63 bytes"),
        (Stored("x", (33,), BY_NAME["Q8_0"], bytes), "rows of whole blocks of 32"),
        (Stored("x", (), BY_NAME["F32"], bytes), "1 to 4 dimensions"),
        (stored("x", torch.full((32,), math.nan), "Q8_0"), "x cannot be stored as Q8_0"),
    ],
)
def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path, tensor, message):
    with pytest.raises(CheckpointError, match=message):
        write_gguf(tmp_path / "out.gguf", {}, [tensor])
    assert not list(tmp_path.iterdir())


def test_doubled_names_and_unfit_fields_are_refused(tmp_path):
    one = stored("x", torch.ones(32), "F32")
    with pytest.raises(CheckpointError, match="two tensors"):
        write_gguf(tmp_path / "out.gguf", {}, [one, one])
    with pytest.raises(CheckpointError, match="'n' cannot be stored as UINT8"):
        write_gguf(tmp_path / "out.gguf", {"n": Field("UINT8", 300)}, [])
    with pytest.raises(CheckpointError, match="mixed"):
        field([1, "a"])
    with pytest.raises(CheckpointError, match="alignment is 24"):
        write_gguf(tmp_path / "out.gguf", {"general.alignment": field(24)}, [])


def test_a_larger_alignment_is_kept(tmp_path):
    path = tmp_path / "wide.gguf"
    write_gguf(path, {"general.alignment": field(4096)}, [stored(n, torch.ones(32), "F32") for n in "ab"])
    assert [info.start % 4096 for info in GGUF(path).tensors.values()] == [0, 0]


@pytest.mark.parametrize("case", ["gguf-llama-a", "gguf-qwen2-a"])
def test_given_files_read_as_the_gguf_package_reads_them(shared, case):
    path = shared / "cases" / "given" / "gguf" / case / f"{case}.gguf"
    file, reader = GGUF(path), gguf.GGUFReader(path)
    assert {t.name for t in reader.tensors} == set(file.tensors)
    for tensor in reader.tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_allclose(file.read(tensor.name).float().numpy(), expected, rtol=1e-6)


@pytest.fixture(scope="session")
def smollm2():
    from cutaway.checkpoints.pull import pull

    return GGUF(pull("smollm2"))


def test_smollm2_metadata_and_weights(smollm2, shared):
    case = json.loads((shared / "cases" / "smollm2.json").read_text())
    for name, entry_ in case["gguf"]["kv"].items():
        if name.startswith("GGUF."):
            continue
        found = smollm2.fields[name]
        assert [found.type, *([found.item] if found.item else [])] == entry_["type"]
        if "value" in entry_:
            assert (list(found.value) if found.item else found.value) == entry_["value"]
        else:
            assert (len(found.value), list(found.value[:8])) == (entry_["len"], entry_["first"])
    table = {t["name"]: (t["type"], tuple(t["ne"][::-1]), t["bytes"]) for t in case["gguf"]["tensors"]}
    assert table == {i.name: (i.kind.name, i.shape, i.n_bytes) for i in smollm2.tensors.values()}
    for ours, theirs in [("token_embd", "model.embed_tokens"), ("blk.29.ffn_down", "model.layers.29.mlp.down_proj")]:
        expected = case["weights"][f"{theirs}.weight"]
        values = smollm2.read(f"{ours}.weight").double()
        assert values.sum().item() == pytest.approx(expected["sum"], rel=1e-9)
        assert values.abs().sum().item() == pytest.approx(expected["abssum"], rel=1e-9)
        assert values.flatten()[:8].tolist() == expected["first8"]


def test_smollm2_is_read_fast_and_within_its_own_size(smollm2):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        best = math.inf
        for _ in range(3):
            start = time.perf_counter()
            weights = {name: smollm2.read(name) for name in smollm2.tensors}
            best = min(best, time.perf_counter() - start)
        assert sum(w.numel() for w in weights.values()) == 134_515_008
        like = torch.empty(134_515_008)
        copies = []
        for _ in range(3):
            start = time.perf_counter()
            like.clone()
            copies.append(time.perf_counter() - start)
        assert best < 20 * min(copies)  # unpacking costs a few times what copying as many numbers does
    finally:
        torch.set_num_threads(threads)
