"""Malformed folders and files through the front door: each is a named error, at once, and costs no memory."""

from __future__ import annotations

import json
import pickle
import random
import resource
import shutil
import struct
import time
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.gguf import GGUF
from cutaway.checkpoints.gguf_write import Stored, field, write_gguf
from cutaway.errors import CheckpointError
from cutaway.tokenizers.load import from_folder
from cutaway.tokenizers.train import train
from tests.checkpoints.test_given import GIVEN

SHARD, INDEX = "model-00002-of-00004.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module", autouse=True)
def _warm():
    cutaway.load(GIVEN / "llama-a" / "model")


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(GIVEN / "llama-a" / "model", tmp_path / "model", copy_function=shutil.copyfile)
    (tmp_path / "model").chmod(0o755)
    return tmp_path / "model"


@pytest.fixture
def refused(folder):
    """Loads the folder (or another path); the message of the error, which must come at once and need no memory."""

    def load(path: Path = folder, **options) -> str:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        with pytest.raises(CheckpointError) as caught:
            cutaway.load(path, **options)
        taken, grown = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert taken < 1 and grown < 200 * 1024 and "\n" not in str(caught.value)
        return str(caught.value)

    return load


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def header(path, change):
    """Edit the header of a safetensors file, its data left as it is."""
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + n])
    change(table)
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + n :])


def truncate(path, n_bytes):
    """So long, the rest a hole."""
    with path.open("r+b") as file:
        file.truncate(n_bytes)


def first(table):
    return next(key for key in table if key != "__metadata__")


CONFIGS = {
    "no JSON": (lambda p: p.write_text("{"), "not valid JSON"),
    "a list": (lambda p: p.write_text("[1]"), "expected a table of keys"),
    "nothing": (lambda p: p.write_text(""), "not valid JSON"),
    "no UTF-8": (lambda p: p.write_bytes(b'{"a": "\xff"}'), "not valid JSON"),
    "deep": (lambda p: p.write_text("[" * 100_000), "not valid JSON"),
    "large": (lambda p: truncate(p, 1 << 40), "at most 4194304 are accepted"),
    "not there": (lambda p: p.unlink(), "no such file"),
    "no model type": (lambda p: edit(p, lambda d: d.pop("model_type")), "model_type 'None' is not known"),
    "unknown model type": (lambda p: edit(p, lambda d: d.update(model_type="x")), "model_type 'x' is not known"),
    "unknown key": (lambda p: edit(p, lambda d: d.update(mystery=1)), "mystery"),
    "unknown rope type": (lambda p: edit(p, lambda d: d.update(rope_scaling={"rope_type": "spiral"})), "spiral"),
    "no eps": (lambda p: edit(p, lambda d: d.pop("rms_norm_eps")), "rms_norm_eps is missing"),
    "a word for a number": (lambda p: edit(p, lambda d: d.update(hidden_size="64")), "expected a whole number"),
    "another width": (lambda p: edit(p, lambda d: d.update(intermediate_size=80)), "the configuration asks for"),
    "another vocabulary": (lambda p: edit(p, lambda d: d.update(vocab_size=400)), "the configuration asks for"),
    "more layers": (lambda p: edit(p, lambda d: d.update(num_hidden_layers=4)), "is missing"),
    "fewer layers": (lambda p: edit(p, lambda d: d.update(num_hidden_layers=2)), "no place for it|not understood"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration(name, folder, refused):
    change, message = CONFIGS[name]
    change(folder / "config.json")
    assert any(part in refused() for part in message.split("|"))


SHARDS = {
    "missing": (lambda p: p.unlink(), "is missing"),
    "empty": (lambda p: p.write_bytes(b""), "empty"),
    "length 2^63": (lambda p: p.write_bytes(struct.pack("<Q", 2**63) + p.read_bytes()[8:]), "9223372036854775808"),
    "overlap": (lambda p: header(p, lambda t: t[first(t)].update(data_offsets=[4, 8])), SHARD),
    "wrong shape": (lambda p: header(p, lambda t: t[first(t)].update(shape=[3])), "its offsets span"),
    "unknown type": (lambda p: header(p, lambda t: t[first(t)].update(dtype="F33")), "F33"),
    "another name": (lambda p: header(p, lambda t: t.update(x=t.pop(first(t)))), "is not in"),
    "pickle": (lambda p: p.write_bytes(b"\x80\x04" + bytes(99)), "pickled"),
    "more bytes": (lambda p: p.write_bytes(p.read_bytes() + bytes(9)), "belong to no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARDS)
def test_a_shard(name, folder, refused):
    change, message = SHARDS[name]
    change(folder / SHARD)
    assert message in refused()


@pytest.mark.parametrize("sixteenth", range(16))
def test_a_shard_cut_at_each_sixteenth(sixteenth, folder, refused):
    path = folder / SHARD
    path.write_bytes(path.read_bytes()[: path.stat().st_size * sixteenth // 16])
    assert SHARD in refused()


INDEXES = {
    "no JSON": (lambda p: p.write_text("{"), "an index of shards"),
    "deep": (lambda p: p.write_text('{"a":' * 100_000), "an index of shards"),
    "large": (lambda p: truncate(p, 1 << 40), "at most"),
    "no map": (lambda p: p.write_text("{}"), "weight_map"),
    "up": (lambda p: edit(p, lambda d: d["weight_map"].update({"model.norm.weight": "../x.safetensors"})), "../x"),
    "root": (lambda p: edit(p, lambda d: d["weight_map"].update({"model.norm.weight": "/x.safetensors"})), "/x"),
    "itself": (lambda p: edit(p, lambda d: d["weight_map"].update({"model.norm.weight": INDEX})), INDEX),
    "one name less": (lambda p: edit(p, lambda d: d["weight_map"].pop("model.norm.weight")), "model.norm.weight"),
    "one name more": (lambda p: edit(p, lambda d: d["weight_map"].update(x=SHARD)), "x is not in"),
    "twice": (lambda p: p.write_text('{"weight_map": {"a": "b", "a": "c"}}'), "'a' is there twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXES)
def test_an_index(name, folder, refused):
    change, message = INDEXES[name]
    change(folder / INDEX)
    assert message in refused()


@pytest.mark.parametrize("value", ["<pad>", -1])
def test_an_id_in_a_gguf_file(value, folder, refused, tmp_path):
    convert(folder, "gguf", tmp_path / "out")
    file = GGUF(next((tmp_path / "out").glob("*.gguf")))
    copies = [Stored(i.name, i.shape, i.kind, lambda name=i.name: file.raw(name)) for i in file.tensors.values()]
    fields = {**file.fields, "tokenizer.ggml.padding_token_id": field(value)}
    write_gguf(tmp_path / "changed.gguf", fields, copies)
    assert "pad" in refused(tmp_path / "changed.gguf")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number(value, folder, refused):
    path = folder / SHARD
    raw = bytearray(path.read_bytes())
    raw[-4:] = struct.pack("<f", value)
    path.write_bytes(raw)
    assert "NaN or infinite" in refused()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "BPE"}}', "[" * 50_000])
def test_a_tokenizer(text, folder, refused):
    (folder / "tokenizer.json").write_text(text)
    assert "tokenizer.json" in refused()
    cutaway.load(folder, tokenizer=False)


def test_no_changed_byte_of_a_tokenizer_gives_another_error(folder):
    train(["the same text again and again"] * 9, 280).save(folder)
    path, draw = folder / "tokenizer.json", random.Random(0)
    raw, named = path.read_bytes(), 0
    for _ in range(200):
        changed = bytearray(raw)
        changed[draw.randrange(len(raw))] = draw.choice(b'0{}[]"9a-,:\xff')
        path.write_bytes(changed)
        try:
            from_folder(folder)
        except CheckpointError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            named += 1
    assert 150 < named < 200


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("change", [lambda p: p.write_text("[" * 100_000), lambda p: truncate(p, 1 << 40)])
def test_a_text_beside_it(name, change, folder, refused):
    train(["text"] * 9, 260).save(folder)
    (folder / name).touch()
    change(folder / name)
    assert name in refused()


def test_pickled_weights_are_refused_and_never_run(folder, refused, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    for path in folder.glob("*.safetensors*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"model.norm.weight": Evil()}))
    assert "pickled" in refused()
    torch.save({"model.norm.weight": Evil()}, folder / "pytorch_model.bin")
    assert "not a file of tensors alone" in refused(allow_pickle=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["config.json", SHARD, INDEX, "tokenizer.json", "1_Pooling/config.json"])
def test_a_link_out_of_the_folder(name, folder, refused, tmp_path):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (tmp_path / "outside").write_text("{}")
    (folder / name).symlink_to(tmp_path / "outside")
    assert "a link out of the folder" in refused()


def test_links_within_the_hubs_cache_are_its_way(folder, tmp_path):
    blobs, snapshot = tmp_path / "repo" / "blobs", tmp_path / "repo" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for path in folder.iterdir():
        path.rename(blobs / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    cutaway.load(snapshot)


@pytest.mark.parametrize("sixteenth", range(16))
def test_a_gguf_file_cut_at_each_sixteenth(sixteenth, tmp_path, refused):
    raw = (GIVEN / "gguf" / "gguf-llama-a" / "gguf-llama-a.gguf").read_bytes()
    (tmp_path / "x.gguf").write_bytes(raw[: len(raw) * sixteenth // 16])
    assert "x.gguf" in refused(tmp_path / "x.gguf", tokenizer=False)


def test_paths_that_are_no_model(tmp_path, refused):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.bin").write_bytes(b"123")
    for path in (tmp_path / "empty", tmp_path / "x.bin", tmp_path / "nosuch"):
        assert path.name in refused(path)
