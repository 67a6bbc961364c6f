"""The file that `show --code` prints: run as it stands, it is the model, weight for weight and logit for logit."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cutaway import spec
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.parts.step import Given
from cutaway.spec.fields import below, kinds
from cutaway.spec.model import Spec
from cutaway.spec.source import source
from tests.checkpoints.test_given import GIVEN, INDEX, KNOWN
from tests.conformance.models import Inputs, drawn
from tests.conformance.strategies import random_specs

ROOT = Path(__file__).resolve().parents[2]
RANDOM = list(random_specs(360, seed=5))  # each legal pair once
FAMILIES = spec.presets.families()


def executed(text):
    """The class `Model` of a text, run with nothing of ours in sight."""
    names = {"__name__": "plain"}
    exec(compile(text, "plain", "exec"), names)
    return names["Model"]


def built(record):
    """Our model, and the printed one with the same weights."""
    ours, plain = drawn(record), executed(source(record))().double().eval()
    plain.load_state_dict(ours.state_dict())
    return ours, plain


def outputs(record):
    """What both give."""
    (ours, plain), given = built(record), Inputs.of(record, 11)  # past the original length of each scaling
    takes = inspect.signature(plain.forward).parameters
    more = {name: getattr(given, name) for name in ("source", "prefix") if name in takes}
    with torch.no_grad():
        return given.run(ours), plain(given.ids, **more)


def assert_equal(record):
    ours, plain = outputs(record)
    assert ours.shape == plain.shape and ours.isfinite().all()
    assert (ours - plain).abs().max() <= 1e-10 * max(1.0, float(ours.abs().max()))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_preset_printed_is_the_model(family):
    assert_equal(spec.preset(f"{family}-tiny"))


@pytest.mark.parametrize("name", spec.names())
def test_every_size_has_the_weights_of_the_spec(name):
    text = source(spec.preset(name))
    with torch.device("meta"):
        model = executed(text)()
    assert {key: tuple(p.shape) for key, p in model.state_dict().items()} == spec.weights(spec.preset(name))
    assert max(len(line) for line in text.splitlines()) <= 80 and len(text.splitlines()) < 320


@pytest.mark.parametrize("index", range(0, 360, 5))
def test_a_random_spec_printed_is_the_model(index):
    assert_equal(RANDOM[index])


@pytest.mark.slow
@pytest.mark.parametrize("index", range(360))
def test_all_random_specs_printed_are_the_models(index):
    assert_equal(RANDOM[index])


def test_token_types_are_an_argument():
    ours, plain = built(spec.preset("bert-tiny"))
    ids, types = torch.tensor([[3, 1, 4, 1, 5, 9]] * 2), torch.tensor([[0, 0, 1, 1, 0, 1]] * 2)
    with torch.no_grad():
        assert (ours(ids, Given(types=types)) - plain(ids, types=types)).abs().max() < 1e-10
        assert (plain(ids, types=types) - plain(ids)).abs().max() > 1e-3


def test_the_file_runs_alone_and_says_its_shape(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(source(spec.preset("t5-tiny")), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.stdout.splitlines() == ["246,784 parameters", "(1, 3, 256)"], done.stderr


def test_nothing_is_left_unused_and_lines_are_short(tmp_path):
    """No unused name, import or definition: what a spec does not use does not appear."""
    for index, record in enumerate(RANDOM[::9]):
        text = source(record)
        (tmp_path / f"m{index}.py").write_text(text, encoding="utf-8")
        for name in re.findall(r"^(?:def|class) (\w+)", text, re.M):
            assert len(re.findall(rf"\b{name}\b", text)) > 1, name
    command = "-m ruff check --isolated --no-cache --select E,F,W --line-length 100".split()
    done = subprocess.run([sys.executable, *command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_equal_parts_are_written_once_and_patterns_as_loops():
    local, whole = (spec.MultiHead(n_heads=2, mask=mask) for mask in (spec.SlidingMask(window=2), spec.CausalMask()))
    blocks = [spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=part),)),)) for part in (local, whole)]
    layers = (spec.Repeat(times=4, blocks=(blocks[0], blocks[0], blocks[1])), blocks[0])
    record = spec.Decoder(d_model=8, vocab_size=9, context_length=16, layers=layers)
    text = source(record)
    assert re.findall(r"class (\w+Attention)\b", text) == ["SlidingAttention", "CausalAttention"]
    assert "for _ in range(4):" in text and text.count("class Block") == 1
    assert_equal(record)


WORKED_OUT = {"n_kv_heads", "head_dim", "value_dim", "width", "rotary_dim"}  # read by sizes, table_width and the like
NOT_PRINTED = {
    "name",
    "kind",
    "layers",
    "times",
    "blocks",
    "context_length",
    "generation",
    "load_balance",
    "labels",
    "problem",
}


def test_every_field_of_every_record_is_read():
    """A field that the generator does not know would be printed wrong in silence."""
    text = "".join(path.read_text() for path in (ROOT / "cutaway" / "spec" / "source").glob("*.py"))
    fields = set(below(*kinds(Spec).values())) - set(spec.Generation.model_fields) - WORKED_OUT - NOT_PRINTED
    assert {name for name in fields if not re.search(rf"\.{name}\b", text)} == set()


@pytest.mark.parametrize("case", [case["case"] for case in INDEX if case["family"] in KNOWN])
def test_a_checkpoint_of_a_family_printed_is_the_model(case):
    assert_equal(open_checkpoint(GIVEN / case / "model").record)
