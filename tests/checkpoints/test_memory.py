"""Memory of loading, showing, verifying and converting, each in a process of its own, and what a load costs."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import time

import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.checkpoints import native
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.cli.show import show_model
from cutaway.models import build
from tests.checkpoints.test_given import GIVEN

SMALL = GIVEN / "llama-a" / "model"
MEASURED = """
import re, sys
import torch, torch.nn.functional
import cutaway
from cutaway.checkpoints.verify import verify
from cutaway.cli.show import show_model
source, small, out = sys.argv[1:4]
def status(key):
    return 1024 * int(re.search(rf"{key}:\\s+(\\d+)", open("/proc/self/status").read())[1])
def run(source, out):
    %s
run(small, out + "-first")  # everything is imported and warm
peak, own = status("VmHWM"), status("RssAnon")
kept = run(source, out)
print(status("VmHWM") - peak, status("RssAnon") - own)
"""


def measured(work, *arguments):
    """By how many bytes the peak grew, and the memory that lies on no file, while `work` ran on a source."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED % work, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()[-2:]]


def of_size(n_layers, d_model, d_ff, vocab_size):
    record = cutaway.preset("llama-tiny")
    record = spec.mapped(record, lambda v: v.replace(d_ff=d_ff) if isinstance(v, spec.Gated) else v)
    layers = (spec.Repeat(times=n_layers, blocks=record.blocks[:1]),)
    return record.replace(d_model=d_model, vocab_size=vocab_size, layers=layers)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A folder of ours with 600 MB of weights."""
    folder = tmp_path_factory.mktemp("large")
    native.save(build(of_size(23, 512, 4096, 256), seed=0), folder)
    assert (folder / "model.safetensors").stat().st_size > 600e6
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        "show_model(source, {}, False)",
        "assert verify(source, with_peers=False).verified",
        "cutaway.convert(source, 'hf', out)",
        "cutaway.convert(source, 'gguf', out)",
        "cutaway.convert(source, 'gguf', out, dtype='Q8_0')",
    ],
)
def test_a_checkpoint_larger_than_the_memory_it_takes(work, large, tmp_path, monkeypatch):
    """Read from the file's own pages, which the system may take back at any time, and a tensor at a time."""
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    peak, _ = measured(work, large, SMALL, tmp_path / "out")
    assert peak < 200e6


@pytest.mark.slow
def test_weights_in_their_own_type_stay_in_the_file(large, tmp_path):
    peak, own = measured("return cutaway.load(source, tokenizer=False)", large, SMALL, tmp_path)
    assert own < 60e6 and peak < 720e6  # the pages that were looked at for a NaN lie on the file


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "n_bytes"), [("float32", 4), ("bfloat16", 2)])
def test_a_load_makes_no_second_copy(dtype, n_bytes, smollm2, tmp_path):
    """Blocks of 4 bits, unpacked; with the tokenizer and the first import of what its family needs."""
    work = f"return cutaway.load(source, torch.{dtype}, tokenizer=source != small)"
    peak, own = measured(work, smollm2.path, SMALL, tmp_path)
    weights = n_bytes * 134_515_008
    assert weights < own < 1.2 * weights and peak < 1.5 * weights


@pytest.mark.slow
def test_a_load_takes_a_few_times_as_long_as_a_copy_of_the_weights(smollm2):
    """In alternating rounds, so that a neighbour's load falls on both."""
    like, loads, copies = torch.empty(134_515_008), [], []
    for _ in range(4):
        start = time.perf_counter()
        cutaway.load(smollm2.path)
        loads.append(time.perf_counter() - start)
        start = time.perf_counter()
        like.clone()
        copies.append(time.perf_counter() - start)
    assert min(loads) < 20 * min(copies)


def test_a_model_that_no_machine_here_holds_is_shown(tmp_path, capsys):
    """294 GB of weights, a hole on the disk: nothing of them is read, and a built model takes no memory for them."""
    record = of_size(80, 8192, 28672, 131072)
    at, header = 0, {}
    for name, shape in spec.weights(record).items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at := at + 4 * math.prod(shape)]}
    text = json.dumps(header).encode()
    (tmp_path / "spec.toml").write_text(spec.to_toml(record))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    assert at > 290e9
    opened = open_checkpoint(tmp_path)
    assert len(opened.match.used) == len(header)
    assert opened.read("blocks.79.attn.norm_in.weight").shape == (8192,)
    show_model(str(tmp_path), {}, False)
    assert "73,552,633,856 parameters, 294 GB" in capsys.readouterr().out
    assert all(weight.is_meta for weight in build(record).parameters())
