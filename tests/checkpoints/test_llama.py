"""Llama folders and files against the peers' own outputs, and broken ones by name."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from cutaway.checkpoints import hf
from cutaway.checkpoints.family import family_of
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.errors import CheckpointError
from cutaway.generation import generate
from cutaway.parts.step import Given

CASES = ["llama-a", "llama-linear-a", "llama-dynamic-a", "llama-llama3-a", "llama-yarn-a", "llama-bf16"]


@pytest.mark.parametrize("name", CASES)
def test_equals_the_peer(name, shared):
    folder = shared / "cases" / "given" / name
    tolerance = {c["case"]: c["tolerance"] for c in json.loads((folder.parent / "index.json").read_text())["cases"]}
    refs = load_file(folder / "refs.safetensors")
    model = open_checkpoint(folder / "model").load()
    for key in ("full", "one", "lpad", "rpad"):
        if f"{key}.ids" not in refs:
            continue
        mask = refs.get(f"{key}.mask")
        with torch.no_grad():
            got = model(refs[f"{key}.ids"], Given(mask=mask))
        real = torch.ones_like(refs[f"{key}.ids"]) if mask is None else mask
        assert (got - refs[f"{key}.logits"])[real == 1].abs().max() <= tolerance[name], key
    for i in range(3):
        options = model.spec.generation.replace(max_tokens=20)
        new = generate(model, [refs[f"gen{i}.prompt"].tolist()], options).ids[0]
        either = [refs[key].tolist() for key in (f"gen{i}.new", f"gen{i}.new_nocache") if key in refs]
        assert new in either


@pytest.mark.parametrize("name", CASES)
def test_config_goes_out_and_comes_back(name, shared):
    from cutaway.checkpoints.config import Config

    record, config = hf.read_spec(shared / "cases" / "given" / name / "model")
    family = family_of("llama", "test")
    again = family.to_spec(Config(family.to_config(record), "written"))
    assert again == record.replace(name="", generation=again.generation)


def test_gguf_equals_the_peer(shared):
    folder = shared / "cases" / "given" / "gguf" / "gguf-llama-a"
    refs = load_file(folder / "refs.safetensors")
    model = open_checkpoint(folder / "gguf-llama-a.gguf").load()
    with torch.no_grad():
        worst = (model(refs["ids"]) - refs["logits"]).abs().max()
    assert worst <= json.loads((folder / "case.json").read_text())["tolerance"]


def broken(shared, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(shared / "cases" / "given" / "llama-a" / "model", folder)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)
    return folder


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_trap_32_missing_shard(shared, tmp_path):
    folder = broken(shared, tmp_path)
    (folder / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(CheckpointError, match="model-00002-of-00004.safetensors is missing"):
        open_checkpoint(folder).load()


def test_trap_32_a_tensor_that_is_not_in_its_shard(shared, tmp_path):
    folder = broken(shared, tmp_path)
    first = "model-00001-of-00004.safetensors"
    edit(folder / "model.safetensors.index.json", lambda d: d["weight_map"].update({"model.norm.weight": first}))
    with pytest.raises(CheckpointError, match="model.norm.weight is not in"):
        open_checkpoint(folder).load()


def test_a_shard_outside_the_folder_is_not_read(shared, tmp_path):
    folder = broken(shared, tmp_path)
    edit(folder / "model.safetensors.index.json", lambda d: d["weight_map"].update({"model.norm.weight": "../x"}))
    with pytest.raises(CheckpointError, match="not a file name in this folder"):
        open_checkpoint(folder).load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(mystery=1), "mystery.*not understood"),
        (lambda d: d.pop("rms_norm_eps"), "rms_norm_eps is missing"),
        (lambda d: d.update(hidden_act="sine"), "hidden_act is 'sine'"),
        (lambda d: d.update(model_type="nosuch"), "model_type 'nosuch' is not known"),
        (lambda d: d.update(intermediate_size=71), "the configuration asks for"),
        (lambda d: d.update(num_hidden_layers=4), "is missing"),
        (lambda d: d.update(num_hidden_layers=10**9), "num_hidden_layers is 1000000000; more than"),
        (lambda d: d.update(num_hidden_layers="3"), "expected a whole number"),
    ],
)
def test_a_wrong_configuration_is_named(shared, tmp_path, change, message):
    folder = broken(shared, tmp_path)
    edit(folder / "config.json", change)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder).load()


@pytest.mark.parametrize("sixteenth", range(0, 16, 3))
def test_a_truncated_shard_is_named(shared, tmp_path, sixteenth):
    folder = broken(shared, tmp_path)
    path = folder / "model-00003-of-00004.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * sixteenth // 16])
    with pytest.raises(CheckpointError, match="model-00003"):
        open_checkpoint(folder).load()
