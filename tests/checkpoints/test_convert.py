"""Out and back: every handed case through both formats, what is refused, and conversions that are broken off."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import cutaway
from cutaway import spec
from cutaway.checkpoints import export, native
from cutaway.checkpoints.blocks import chain
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.convert_gguf import STORED
from cutaway.checkpoints.family import families
from cutaway.checkpoints.gguf import GGUF
from cutaway.checkpoints.gguf_blocks import BY_NAME
from cutaway.checkpoints.gguf_quantize import quantize
from cutaway.checkpoints.opened import open_checkpoint
from cutaway.checkpoints.verify import verify
from cutaway.checkpoints.weights import open_weights
from cutaway.errors import CheckpointError
from cutaway.models import build
from tests.checkpoints.test_given import GIVEN, INDEX, KNOWN

CASES = [case["case"] for case in INDEX if case["family"] in KNOWN]
ARCHITECTURES = {each.architecture: family for family in families() for each in family.gguf}
LAYOUT = {case["case"]: case["family"] for case in INDEX}
WITH_FILE = [case for case in CASES if any(LAYOUT[case] in f.model_types for f in ARCHITECTURES.values())]
NOT_SAID = {
    "llama-dynamic-a": "scaling is dynamic", "gemma3-a": "attn.scale is", "gemma2-a": "attn.scale is",
    "bert-a-mlm": "head is masked", "falcon-c": "positions is alibi",
}  # fmt: skip
"""Cases whose family has an architecture that cannot say them, and the words of the refusal."""
ROUNDED = {"gemma-a": "norm.weight"}
"""Tensors that stand in the file with 1 added, which rounds them."""
LEFT_OUT = {"bert-b-base-oldnames": "pooler"}
"""What the format has no place for, as the notes say."""


def tensors(folder):
    """Every tensor of a folder by name, as bytes with shape and type."""
    source = open_weights(folder)
    return {
        name: (
            source.dtype(name),
            source.shape(name),
            hashlib.sha256(source.read(name).view(torch.uint8).numpy().tobytes()).hexdigest(),
        )
        for name in source.names()
        if source.shape(name)
    }


def kept(case):
    """The tensors of a case that carry its weights: those that are read, by their names of today."""
    opened = open_checkpoint(GIVEN / case / "model")
    old = tensors(GIVEN / case / "model")
    return {opened.renamed(rule.theirs): old[own] for own, rule in opened.match.used if own in old}


def logits(path):
    loaded = cutaway.load(path, tokenizer=False)
    ids = torch.randint(0, 200, (2, 17), generator=torch.Generator().manual_seed(0))
    if isinstance(loaded.spec, spec.EncoderDecoder):
        with torch.no_grad():
            return loaded.model(ids, cutaway.Given(memory=loaded.model.encode(ids)))
    return loaded(ids)


@pytest.mark.parametrize("case", CASES)
def test_out_to_a_folder_and_back_loses_nothing(case, tmp_path):
    written = convert(GIVEN / case / "model", "hf", tmp_path / "out")
    opened = open_checkpoint(tmp_path / "out")
    assert {opened.renamed(name): value for name, value in tensors(tmp_path / "out").items()} == kept(case)
    first, again = open_checkpoint(GIVEN / case / "model").record, opened.record
    assert again == first.replace(name="out") or spec.differences(first, again) == []
    assert again.generation == first.generation
    assert torch.equal(logits(GIVEN / case / "model"), logits(tmp_path / "out"))
    assert written.notes == []


@pytest.mark.parametrize("case", WITH_FILE)
def test_out_to_a_file_and_back_loses_nothing(case, tmp_path):
    if case in NOT_SAID:
        with pytest.raises(CheckpointError, match=NOT_SAID[case]):
            convert(GIVEN / case / "model", "gguf", tmp_path / "file")
        return
    wanted = kept(case)
    stored = {dtype for dtype, *_ in wanted.values()}  # vectors are F32 in the file
    (dtype,) = stored if len(stored) == 1 else {torch.float32}
    written = convert(GIVEN / case / "model", "gguf", tmp_path / "file")
    if case in LEFT_OUT:
        assert LEFT_OUT[case] in written.notes[0]
        wanted = {name: value for name, value in wanted.items() if LEFT_OUT[case] not in name}
    convert(tmp_path / "file", "hf", tmp_path / "back", dtype=STORED[dtype])
    opened = open_checkpoint(tmp_path / "back")
    got = {opened.renamed(name): value for name, value in tensors(tmp_path / "back").items()}
    if case in ROUNDED:
        assert set(got) == set(wanted)
        got, wanted = ({n: v for n, v in each.items() if not n.endswith(ROUNDED[case])} for each in (got, wanted))
    assert got == wanted
    assert (logits(GIVEN / case / "model") - logits(tmp_path / "file")).abs().max() < 2e-5
    assert (logits(GIVEN / case / "model") - logits(tmp_path / "back")).abs().max() < 2e-5


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a_file_in_each_type(kind, tmp_path):
    folder = GIVEN / "llama-a" / "model"
    written = convert(folder, "gguf", tmp_path / "file", dtype=kind)
    (path,) = (tmp_path / "file").iterdir()
    file, original = GGUF(path), open_checkpoint(folder)
    assert {info.kind.name for info in file.tensors.values() if len(info.shape) == 1} == {"F32"}
    assert file.tensors["blk.0.attn_q.weight"].kind.name == kind
    narrow = file.tensors["blk.0.ffn_down.weight"]  # rows of 72 are no whole blocks of 32
    assert narrow.kind.name == (kind if BY_NAME[kind].size == 1 else "F16")
    assert bool(written.notes) == (BY_NAME[kind].size > 1)
    up = original.read("blocks.0.ffn.up_proj.weight").float().numpy()
    assert file.raw("blk.0.ffn_up.weight").tobytes() == quantize(up, BY_NAME[kind]).tobytes()


def test_blocks_are_copied_as_they_are(tmp_path):
    path = GIVEN / "gguf" / "gguf-llama-a" / "gguf-llama-a.gguf"
    convert(path, "gguf", tmp_path / "copy")
    old, new = GGUF(path), open_checkpoint(tmp_path / "copy").file
    assert {n: (i.shape, i.kind) for n, i in old.tensors.items()} == {
        n: (i.shape, i.kind) for n, i in new.tensors.items()
    }
    assert all(old.raw(name).tobytes() == new.raw(name).tobytes() for name in old.tensors)
    fields = {key: field for key, field in old.fields.items() if key.startswith("tokenizer.")}
    assert fields and all(str(new.fields[key]) == str(field) for key, field in fields.items())


def test_a_trained_model_goes_out_in_the_form_that_a_family_has(tmp_path):
    record = cutaway.preset("modern-tiny")
    native.save(build(record, seed=5), tmp_path / "own")
    written = convert(tmp_path / "own", "hf", tmp_path / "hf")
    assert written.notes == ["rows of q and k in the other order of RoPE's pairs"]
    assert (logits(tmp_path / "own") - logits(tmp_path / "hf")).abs().max() < 1e-5
    convert(tmp_path / "own", "gguf", tmp_path / "gguf")
    assert (logits(tmp_path / "own") - logits(tmp_path / "gguf")).abs().max() < 1e-5


def test_a_model_that_fits_no_family_is_refused_with_the_list(tmp_path):
    native.save(build(cutaway.preset("textbook-tiny"), seed=5), tmp_path / "own")
    with pytest.raises(CheckpointError) as caught:
        convert(tmp_path / "own", "hf", tmp_path / "hf")
    message = str(caught.value)
    assert "no Hugging Face family can hold this model" in message and "\n" not in message
    assert "embedding.positions is sinusoidal" in message and "own format" in message
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def layers(*stages):
    """A layer of parts one after the other for each of these lists."""
    return tuple(chain(parts, before=spec.RMSNorm()) for parts in stages)


ATTENTION = spec.MultiHead(n_heads=4, positions=spec.RoPE(layout="halves"))
MIXTURE = spec.MixtureOfExperts(n_experts=4, n_active=2, expert=spec.Gated(d_ff=16))


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((), "it has no layers"),
        (layers((ATTENTION, MIXTURE), (ATTENTION,)), "layers 1 stages.1 is absent, there present"),
    ],
)
def test_layers_that_no_configuration_says_are_refused(blocks, message):
    record = cutaway.preset("llama-tiny").replace(layers=blocks)
    for fit in (export.fit_hf, export.fit_gguf):
        with pytest.raises(CheckpointError, match=message):
            fit(record)


def test_a_mistake_in_a_translation_is_heard(monkeypatch):
    """Another kind of model is no error; anything else that a translation raises is its own."""
    (family,) = (family for family in families() if "llama" in family.model_types)
    for wrong in (lambda record: [] + 1, lambda record: {}["key"], lambda record: family.nosuch):
        monkeypatch.setattr(export, "families", lambda wrong=wrong: (replace(family, to_config=wrong),))
        with pytest.raises((TypeError, KeyError, AttributeError)):
            export.fit_hf(cutaway.preset("llama-tiny"))
    monkeypatch.setattr(export, "families", lambda: (family,))
    with pytest.raises(CheckpointError, match="no Hugging Face family can hold this model"):
        export.fit_hf(cutaway.preset("t5-small"))


def test_copies_that_differ_are_not_converted(tmp_path):
    """A tied table that the folder holds twice, the second time with other numbers."""
    folder = tmp_path / "in"
    shutil.copytree(GIVEN / "qwen2-a" / "model", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, folder / "model.safetensors")
    for run in (lambda: convert(folder, "hf", tmp_path / "out"), lambda: verify(folder, with_peers=False)):
        with pytest.raises(CheckpointError, match="one tensor in this model, but the file's differ"):
            run()


def test_ids_that_a_file_does_not_have_are_null_in_a_folder(tmp_path):
    """The peer's class would take ids of its own, one of them for a row that this table does not have."""
    record = open_checkpoint(GIVEN / "phi3-a" / "model").record
    native.save(build(record.replace(generation=spec.Generation()), seed=0), tmp_path / "own")
    convert(tmp_path / "own", "gguf", tmp_path / "file", family="phi3")
    assert convert(tmp_path / "file", "hf", tmp_path / "out").notes == []
    for name in ("config.json", "generation_config.json"):
        written = json.loads((tmp_path / "out" / name).read_text())
        assert [written[f"{role}_token_id"] for role in ("bos", "eos", "pad")] == [None] * 3
    assert open_checkpoint(tmp_path / "out").record.generation == spec.Generation()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "onnx"}, "known are hf and gguf"),
        ({"to": "hf", "dtype": "Q8_0"}, "choose F32, F16, BF16"),
        ({"to": "gguf", "dtype": "Q9"}, "choose F32, F16, BF16, Q8_0"),
        ({"to": "hf", "family": "nosuch"}, "it does not fit nosuch"),
    ],
)
def test_options_that_cannot_be(options, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        convert(GIVEN / "llama-a" / "model", out=tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "thesis.txt"):
        with pytest.raises(CheckpointError, match="there is something already"):
            convert(GIVEN / "llama-a" / "model", "hf", out)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_values_too_large_for_the_type_are_named(tmp_path):
    model = build(cutaway.preset("llama-tiny"), seed=0)
    with torch.no_grad():
        model.get_parameter("blocks.1.ffn.up_proj.weight")[3, 4] = 1e6
    native.save(model, tmp_path / "own")
    with pytest.raises(CheckpointError, match=r"layers.1.mlp.up_proj.weight has values too large for torch.float16"):
        convert(tmp_path / "own", "hf", tmp_path / "hf", dtype="F16")
    with pytest.raises(CheckpointError, match=r"blk.1.ffn_up.weight cannot be stored as F16"):
        convert(tmp_path / "own", "gguf", tmp_path / "gguf", dtype="F16")
    convert(tmp_path / "own", "hf", tmp_path / "hf", dtype="BF16")


KILLED = """
import sys, time
from cutaway.checkpoints import safetensors_write, gguf_write, convert
import cutaway.checkpoints.written as written
read, n = written.Taken.read, 0
def slow(self, place):
    global n
    n += 1
    if n == 12:
        print("half", flush=True)
        time.sleep(60)
    return read(self, place)
written.Taken.read = slow
convert.convert(sys.argv[1], sys.argv[2], sys.argv[3])
"""


@pytest.mark.parametrize("to", ["hf", pytest.param("gguf", marks=pytest.mark.slow)])
def test_a_killed_conversion_leaves_nothing_that_loads(to, tmp_path):
    source, out = GIVEN / "llama-a" / "model", tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", KILLED, source, to, out], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"half\n"
    process.kill()
    process.wait()
    left = list(tmp_path.iterdir())
    assert left and out not in left
    for path in left:
        with pytest.raises(CheckpointError):
            cutaway.load(path)
    convert(source, to, out)  # the leftovers are in nobody's way
    assert list(tmp_path.iterdir()) == [out]
    cutaway.load(out, tokenizer=False)
