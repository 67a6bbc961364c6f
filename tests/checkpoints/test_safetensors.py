from __future__ import annotations

import json
import os
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.checkpoints.safetensors import DTYPES, SafetensorsFile, SafetensorsFolder
from cutaway.checkpoints.safetensors_write import Output, outputs, write_file, write_folder
from cutaway.errors import CheckpointError


def build(header: object, data: int = 0, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(data)


def tensor(begin: int, end: int, shape=None, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "seven bytes": (b"1234567", "only 7 bytes"),
    "length 2^63": (build({}, length=2**63), "9223372036854775808 bytes"),
    "length 2^64-1": (build({}, length=2**64 - 1), "but the file has only"),
    "length past the end": (build({}, length=3), "but the file has only"),
    "length 0": (build(b""), "not a header"),
    "pickle": (b"PK\x03\x04" + bytes(100), "pickled"),
    "old pickle": (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + bytes(90), "pickled"),
    "gguf": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(90), "GGUF"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "no JSON": (build(b"hello world"), "not a header"),
    "no UTF-8": (build(b'{"\xff": 1}'), "not a header"),
    "a list": (build([1, 2]), "a list, not a table"),
    "deep nesting": (build(b"[" * 200_000), "not a header"),
    "huge number": (build(b'{"a": ' + b"9" * 10_000 + b"}"), "not a header"),
    "duplicate key": (build(b'{"a": 1, "a": 2}'), "'a' is there twice"),
    "duplicate tensor": (
        build(
            b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},'
            b' "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
            8,
        ),
        "'a' is there twice",
    ),
    "metadata of numbers": (build({"__metadata__": {"a": 1}}), "__metadata__"),
    "no offsets": (build({"a": {"dtype": "F32", "shape": [1]}}, 4), "a is not described by"),
    "more keys": (build({"a": tensor(0, 4) | {"more": 1}}, 4), "a is not described by"),
    "a number": (build({"a": 5}), "a is not described by"),
    "unknown type": (build({"a": tensor(0, 4, dtype="F31")}, 4), "'F31'"),
    "type of a wrong kind": (build({"a": tensor(0, 4, dtype=["F32"])}, 4), "['F32']"),
    "negative dimension": (build({"a": tensor(0, 4, [-1])}, 4), "whole numbers"),
    "fractional dimension": (build({"a": tensor(0, 4, [1.0])}, 4), "whole numbers"),
    "true as a dimension": (build({"a": tensor(0, 4, [True])}, 4), "whole numbers"),
    "2^63 by 2^63": (build({"a": tensor(0, 4, [2**63, 2**63])}, 4), "its offsets span 4"),
    "shape and bytes": (build({"a": tensor(0, 8, [3])}, 8), "takes 12 bytes"),
    "offsets backwards": (build({"a": tensor(8, 4, [1])}, 8), "its offsets span -4"),
    "negative offset": (build({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, 4), "whole numbers"),
    "three offsets": (build({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2, 4]}}, 4), "whole numbers"),
    "overlap": (build({"a": tensor(0, 8), "b": tensor(4, 12)}, 12), "b overlaps a"),
    "same place": (build({"a": tensor(0, 4), "b": tensor(0, 4)}, 4), "overlaps"),
    "hole": (build({"a": tensor(0, 4), "b": tensor(8, 12)}, 12), "between a and b lie 4 bytes"),
    "hole at the start": (build({"a": tensor(4, 8)}, 8), "between the header and a"),
    "past the end": (build({"a": tensor(0, 400)}, 40), "the file has only"),
    "offset 2^62": (build({"a": tensor(2**62, 2**62 + 4)}, 4), "between the header and a"),
    "more data": (build({"a": tensor(0, 4)}, 9), "behind a lie 5 bytes"),
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
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert ";" in str(caught.value)
    with pytest.raises(CheckpointError):
        SafetensorsFolder(tmp_path)


def test_a_header_that_is_too_long_is_not_read(tmp_path, bounded):
    path = tmp_path / "big.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 30) + b"{")
        file.truncate((1 << 30) + 8)
    with pytest.raises(CheckpointError, match="at most 16777216 are accepted"):
        SafetensorsFile(path)


@pytest.mark.parametrize("sixteenth", range(16))
def test_files_cut_at_each_sixteenth_are_refused(tmp_path, bounded, sixteenth):
    path = tmp_path / "x.safetensors"
    write_file(path, outputs({"a": torch.ones(5, 3), "b": torch.ones(70)})[0])
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * sixteenth // 16])
    with pytest.raises(CheckpointError):
        SafetensorsFile(path)


def test_no_changed_byte_of_the_header_gives_another_error(tmp_path):
    path = tmp_path / "x.safetensors"
    write_file(path, outputs({"a": torch.ones(5, 3), "b": torch.ones(2).half()})[0])
    data = path.read_bytes()
    for at in range(8 + int.from_bytes(data[:8], "little")):
        for byte in (34, 57):
            path.write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
            try:
                file = SafetensorsFile(path)
            except CheckpointError:
                continue
            for name in file.names():
                file.read(name)


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def sharded(tmp_path):
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4), "c": torch.zeros(3, dtype=torch.int64)}
    write_folder(tmp_path, outputs(tensors)[0], shard_bytes=40)
    assert (tmp_path / SHARDS[0]).is_file()
    return tmp_path, tensors


def edit_index(folder, change) -> None:
    path = folder / "model.safetensors.index.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    change(table["weight_map"])
    path.write_text(json.dumps(table), encoding="utf-8")


def test_shards_are_read_as_the_index_says(sharded):
    folder, tensors = sharded
    write_file(folder / "stray.safetensors", outputs({"a": torch.full((2, 3), 9.0), "z": torch.ones(1)})[0])
    write_file(folder / "model.safetensors", outputs({"a": torch.full((2, 3), 9.0)})[0])
    source = SafetensorsFolder(folder)
    assert sorted(source.names()) == ["a", "b", "c"]
    for name, value in tensors.items():
        assert torch.equal(source.read(name), value)
        assert (source.shape(name), source.dtype(name)) == (tuple(value.shape), value.dtype)


def test_trap_32_index_and_shards_disagree(sharded):
    folder, _ = sharded
    shard_of = {name: shard for shard in SHARDS for name in SafetensorsFile(folder / shard).names()}
    other = {SHARDS[0]: SHARDS[1], SHARDS[1]: SHARDS[0]}
    index = (folder / "model.safetensors.index.json").read_text(encoding="utf-8")

    def refused(change, message):
        edit_index(folder, change)
        with pytest.raises(CheckpointError, match=message):
            SafetensorsFolder(folder)
        (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")

    refused(lambda table: table.update(a=other[shard_of["a"]]), "a is not in .*, where the index says")
    refused(lambda table: table.update(z=SHARDS[0]), "z is not in")
    refused(lambda table: table.update(b="model-00003-of-00003.safetensors"), "model-00003.*is missing")
    refused(lambda table: table.pop("a"), "holds a, which the index does not list")
    both = outputs({"a": torch.ones(2, 3), "b": torch.ones(4), "c": torch.ones(3)})[0]
    write_file(folder / shard_of["b"], both)
    with pytest.raises(CheckpointError, match=r"is in model-.* and in model-"):
        SafetensorsFolder(folder)
    os.remove(folder / shard_of["a"])
    with pytest.raises(CheckpointError, match="is missing, which holds a; fetch that file too"):
        SafetensorsFolder(folder)


@pytest.mark.parametrize(
    "shard", ["../other.safetensors", "/etc/passwd", "..", ".", "", "sub/x.safetensors", "..\\x", "c:x", None, 5, ["x"]]
)
def test_an_index_cannot_leave_its_folder(sharded, bounded, shard):
    folder, _ = sharded
    write_file(folder.parent / "other.safetensors", outputs({"a": torch.ones(2, 3)})[0])
    edit_index(folder, lambda table: table.update(a=shard))
    with pytest.raises(CheckpointError, match="not a file name in this folder"):
        SafetensorsFolder(folder)


def test_an_index_that_names_itself_or_a_loop_ends(sharded, bounded):
    folder, _ = sharded
    edit_index(folder, lambda table: table.update(a="model.safetensors.index.json"))
    with pytest.raises(CheckpointError, match=r"index\.json: "):
        SafetensorsFolder(folder)
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    edit_index(folder, lambda table: table.update(a="loop.safetensors"))
    with pytest.raises(CheckpointError, match=r"loop\.safetensors.* is missing"):
        SafetensorsFolder(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not an index"),
        ("[]", "not an index"),
        ("{}", "weight_map"),
        ('{"weight_map": []}', "weight_map"),
        ('{"weight_map": {}}', "weight_map"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "'a' is there twice"),
        ("[" * 200_000, "not an index"),
        (" " * ((1 << 24) + 1), "at most"),
    ],
)
def test_garbled_indexes_are_refused(tmp_path, bounded, text, message):
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        SafetensorsFolder(tmp_path)


def test_what_is_there_instead_is_told(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor .* is there \(but: notes\.txt\)"):
        SafetensorsFolder(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        SafetensorsFolder(tmp_path / "nothing")


NUMBERS = [d for d in DTYPES.values() if d.is_floating_point and d.itemsize > 1] + [torch.int64, torch.int8, torch.bool]


@settings(max_examples=40)
@given(
    shapes=st.dictionaries(st.text(min_size=1, max_size=8), st.lists(st.integers(0, 4), max_size=4), max_size=6),
    picks=st.lists(st.sampled_from(NUMBERS), min_size=6, max_size=6),
)
def test_round_trip_with_the_library_both_ways(tmp_path_factory, shapes, picks):
    path = tmp_path_factory.getbasetemp() / "round.safetensors"
    shapes.pop("__metadata__", None)
    shapes = {n.encode("utf-8", "replace").decode(): s for n, s in shapes.items()}
    torch.manual_seed(0)
    tensors = {n: (torch.randn(s) * 9).to(d) for (n, s), d in zip(shapes.items(), picks, strict=False)}
    write_file(path, outputs(tensors)[0], {"note": "x"})
    theirs = safetensors.torch.load_file(path)
    ours = SafetensorsFile(path)
    assert ours.metadata["note"] == "x"
    assert set(theirs) == set(ours.names()) == set(tensors)
    for name, value in tensors.items():
        assert torch.equal(theirs[name], value)
        assert torch.equal(ours.read(name), value)
        assert ours.dtype(name) == value.dtype
    safetensors.torch.save_file(tensors, path)
    again = SafetensorsFile(path)
    assert all(torch.equal(again.read(name), value) for name, value in tensors.items())


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_round_trips(tmp_path, name):
    dtype = DTYPES[name]
    raw = torch.arange(48, dtype=torch.uint8) % 2 if name == "BOOL" else torch.arange(48, dtype=torch.uint8)
    value = raw.view(dtype)
    write_file(tmp_path / "x.safetensors", [Output("x", tuple(value.shape), dtype, lambda: value)])
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert file.dtype("x") == dtype
    assert torch.equal(file.read("x").view(torch.uint8), raw)


def test_given_checkpoints_read_as_the_library_reads_them(shared):
    folders = sorted((shared / "cases" / "given").glob("*/model"))
    assert len(folders) > 40
    for folder in folders:
        source = SafetensorsFolder(folder)
        theirs = {k: v for path in folder.glob("*.safetensors") for k, v in safetensors.torch.load_file(path).items()}
        assert set(source.names()) == set(theirs)
        for name, value in theirs.items():
            assert torch.equal(source.read(name), value)


def test_tensors_lie_on_the_map_and_never_change_the_file(tmp_path):
    path = tmp_path / "x.safetensors"
    write_file(path, outputs({"a": torch.ones(4)})[0])
    before = path.read_bytes()
    file = SafetensorsFile(path)
    first, second = file.read("a"), file.read("a")
    assert first.data_ptr() == second.data_ptr()
    first.add_(1)
    assert torch.equal(second, torch.full((4,), 2.0))
    assert path.read_bytes() == before


def test_a_file_larger_than_the_memory_is_read_where_it_is_asked(tmp_path):
    path = tmp_path / "huge.safetensors"
    n = 1 << 36  # 256 GB of float32, a hole on disk
    header = json.dumps({"a": {"dtype": "F32", "shape": [n], "data_offsets": [0, 4 * n]}}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * n)
    values = SafetensorsFile(path).read("a")
    assert values.numel() == n
    assert values[-1] == values[n // 2] == 0


def test_old_files_that_are_not_aligned_are_read(tmp_path):
    path = tmp_path / "odd.safetensors"
    header = json.dumps({"a": tensor(0, 8)}).encode()
    header += b" " * ((3 - len(header)) % 4)
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2.0))
    assert SafetensorsFile(path).read("a").tolist() == [1.5, -2.0]


def test_reading_into_a_given_tensor(tmp_path):
    path = tmp_path / "x.safetensors"
    value = torch.randn(4, 3).bfloat16()
    write_file(path, outputs({"a": value})[0])
    out = torch.empty(4, 3)
    assert SafetensorsFile(path).read("a", out) is out
    assert torch.equal(out, value.float())
    with pytest.raises(CheckpointError, match=r"a has the shape \(4, 3\), but \(3, 4\)"):
        SafetensorsFile(path).read("a", torch.empty(3, 4))
    with pytest.raises(CheckpointError, match="no tensor 'b'"):
        SafetensorsFile(path).read("b")


def test_trap_29_tensors_that_share_memory_are_stored_once(tmp_path):
    path = tmp_path / "x.safetensors"
    weight = torch.randn(8, 4)
    kept, left_out = outputs({"embedding": weight, "head": weight, "view": weight[2:], "twin": weight.clone()})
    assert left_out == {"head": "embedding"}
    write_file(path, kept, left_out)
    file = SafetensorsFile(path)
    assert set(file.tensors) == {"embedding", "view", "twin"}
    assert set(file.names()) == {"embedding", "view", "twin", "head"}
    assert file.read("head").data_ptr() == file.read("embedding").data_ptr()
    assert torch.equal(file.read("head"), weight)


def test_trap_29_shared_tensors_of_the_library_too(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 3, bias=False)
            self.b = torch.nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    safetensors.torch.save_model(model, str(tmp_path / "x.safetensors"))
    file = SafetensorsFile(tmp_path / "x.safetensors")
    assert len(file.tensors) == 1
    assert torch.equal(file.read("a.weight"), model.a.weight)
    assert torch.equal(file.read("b.weight"), model.a.weight)


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    one = Output("a", (2,), torch.float32, lambda: torch.ones(2))
    with pytest.raises(CheckpointError, match="two tensors"):
        write_file(tmp_path / "x", [one, one])
    with pytest.raises(CheckpointError, match="does not have"):
        write_file(tmp_path / "x", [Output("a", (2,), torch.complex128, lambda: torch.ones(2))])

    def broken():
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_file(tmp_path / "x", [Output("a", (2,), torch.float32, broken)])
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="check the folder"):
        write_folder(tmp_path / "file" / "sub", [one])
    for path in (tmp_path / "file" / "x", tmp_path / ("x" * 300), tmp_path / "a\0b", tmp_path, Path("")):
        with pytest.raises(CheckpointError, match="check the folder"):
            write_file(path, [one])
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
