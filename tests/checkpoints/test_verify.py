"""Parity records: what they hold, that they catch a wrong number, and that they know when a file has changed."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.checkpoints.by_layer import Float64, by_layer
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.parity import Layer, Parity, Peer, marks, records
from cutaway.checkpoints.verify import verify
from cutaway.cli import main
from cutaway.cli.verify import show_record
from cutaway.parts import norms
from tests.checkpoints.test_given import GIVEN, INDEX, KNOWN

CASES = [case["case"] for case in INDEX if case["family"] in KNOWN]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def llama(tmp_path):
    folder = tmp_path / "llama"
    shutil.copytree(GIVEN / "llama-a" / "model", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_close_to_float64_in_every_layer(case):
    record = verify(GIVEN / case / "model", with_peers=False)
    assert record.verified, record.worst
    n_layers = sum(len(stack.blocks) for stack in spec.stacks(open_checkpoint(GIVEN / case / "model").record).values())
    assert len(record.layers) >= n_layers + 3


def test_what_a_record_holds(llama):
    record = verify(llama, with_peers=False)
    assert record.path == str(llama) and record.family == "llama" and record.version == cutaway.__version__
    assert (
        record.read["rope_theta"] == 500000.0 and record.ignored_keys["torch_dtype"] == "the caller chooses the dtype"
    )
    assert record.n_tensors == 30 and record.ignored_tensors == {} and len(record.ids) == 24
    assert [layer.name for layer in record.layers] == ["embedded", "blocks.0", "blocks.1", "blocks.2", "final", "head"]
    assert all(layer.worst < 2e-5 and layer.largest > 1 for layer in record.layers)
    assert records() == [record] and not record.stale


def test_leftovers_and_assumptions_are_told():
    record = verify(GIVEN / "gpt2-c-bare" / "model", with_peers=False)
    assert record.ignored_tensors and set(record.ignored_tensors.values()) <= {"h.*.attn.bias", "h.*.attn.masked_bias"}
    assert verify(GIVEN / "gguf" / "gguf-llama-a" / "gguf-llama-a.gguf", with_peers=False).family == "llama"


def test_a_wrong_number_is_caught_where_it_begins(llama, monkeypatch):
    right, calls = norms.RMSNorm.forward, []

    def wrong(self, x):
        calls.append(self)
        return right(self, x) * (1.001 if len(calls) == 3 else 1)  # the first norm of the second block

    monkeypatch.setattr(norms.RMSNorm, "forward", wrong)
    record = verify(llama, with_peers=False)
    assert not record.verified
    assert [layer.close for layer in record.layers] == [True, True, False, False, False, False]


def test_a_record_knows_that_a_file_has_changed(llama):
    record = verify(llama, with_peers=False)
    config = llama / "config.json"
    os.utime(config, ns=(0, 0))
    assert record.stale and records()[0].stale
    assert not verify(llama, with_peers=False).stale and len(records()) == 1
    shutil.rmtree(llama)
    assert records()[0].stale


def test_damaged_records_are_left_out(llama, tmp_path):
    verify(llama, with_peers=False)
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"layers": [], "peers": []}'), ("d", "null")):
        (tmp_path / "cache" / "verified" / f"{name}.json").write_text(text)
    assert len(records()) == 1


def test_a_peer_that_says_otherwise_is_heard():
    record = Parity("x", "llama", "now", "0", marks(GIVEN / "llama-a" / "model"), layers=[Layer("head", 1e-6, 1.0)])
    for peer, agrees in (
        (Peer("p", worst=1e-4, largest=8.0), True),
        (Peer("p", worst=1e-2, largest=8.0), False),
        (Peer("p", worst=0.5, largest=8.0, n_same=20, n_sure=20, exact=False), True),
        (Peer("p", worst=0.5, largest=8.0, n_same=19, n_sure=20, exact=False), False),
        (Peer("p", "not asked", worst=9.0), True),
    ):
        record.peers = [peer]
        assert record.verified is agrees


@pytest.mark.parametrize("case", CASES)
def test_one_layer_at_a_time_computes_the_same(case):
    opened = open_checkpoint(GIVEN / case / "model")
    model, whole = by_layer(opened), cutaway.load(GIVEN / case / "model").model
    held = []
    for block in model.modules():
        if type(block).__name__ == "Block":
            block.register_forward_hook(
                lambda *_: held.append(sum(not p.is_meta for n, p in model.named_parameters() if "blocks." in n))
            )
    ids = torch.arange(3, 14)[None]
    with torch.no_grad():
        if isinstance(opened.record, spec.EncoderDecoder):
            got, want = (m(ids, cutaway.Given(memory=m.encode(ids))) for m in (model, whole))
        else:
            got, want = model(ids), whole(ids)
    assert torch.equal(got, want)
    assert set(held) == {0} and all(p.is_meta for n, p in model.named_parameters() if "blocks." in n)


def test_weights_as_float64():
    weights = Float64(open_checkpoint(GIVEN / "llama-bf16" / "model"))
    name = "blocks.1.ffn.up_proj.weight"
    assert name in weights and "nothing" not in weights and len(weights) == len(list(weights))
    assert weights[name].dtype == "float64" and weights[name] is weights[name]
    with pytest.raises(KeyError):
        weights["nothing"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command in this process; what it printed, and its exit status."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["cutaway", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code
        out = capsys.readouterr().out
        assert "--json" in words or all(len(line) <= 80 or line.startswith("/") for line in out.splitlines())
        return out, status

    return call


def test_the_command_and_the_list(llama, run):
    shown, status = run("verify", llama, "--no-peers")
    assert status == 0
    assert "llama: verified" in shown and "blocks.2" in shown and "torch_dtype: the caller chooses" in shown
    assert json.loads(run("verify", llama, "--no-peers", "--json")[0])["verified"] is True
    assert "verified 20" in run("list")[0]
    os.utime(llama / "config.json", ns=(0, 0))
    assert "changed since it was verified" in run("list")[0]
    (entry,) = json.loads(run("list", "--json")[0])["verified"]
    assert entry["path"] == str(llama) and entry["stale"] and entry["verified"]
    (llama / "config.json").unlink()
    assert run("verify", llama)[1] == 2
    shutil.rmtree(llama)
    shown = run("list")[0]
    assert "1 more verified, but gone since; --json names it" in shown and str(llama) not in shown
    (entry,) = json.loads(run("list", "--json")[0])["verified"]
    assert entry["path"] == str(llama) and not entry["here"]


def test_what_is_long_is_told_whole(capsys):
    words = [f"layer_{i}:full_attention" for i in range(30)]
    record = Parity(path="here", family="llama", made="", version="", files=[], assumed={"kinds": " ".join(words)})
    record.peers = [Peer("transformers", said="not asked: " + " ".join(reversed(words)))]
    show_record(record)
    shown = capsys.readouterr().out
    assert shown.split().count(words[-1]) == 2 and all(len(line) <= 80 for line in shown.splitlines())


def test_the_command_ends_with_1_where_something_is_wrong(llama, run, monkeypatch):
    right = norms.RMSNorm.forward
    monkeypatch.setattr(norms.RMSNorm, "forward", lambda self, x: right(self, x) * 1.01)
    shown, status = run("verify", llama, "--no-peers")
    assert status == 1 and "NOT VERIFIED" in shown and "far" in shown
