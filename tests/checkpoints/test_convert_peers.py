"""What is written is opened by transformers, and gives what the handed references say."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

import cutaway
from cutaway.checkpoints.convert import convert
from cutaway.checkpoints.opened import open_checkpoint
from tests.checkpoints.families import tiny_pairs
from tests.checkpoints.families.tiny import peer, tiny
from tests.checkpoints.families.tiny_pairs import SMALL, batch
from tests.checkpoints.test_given import GIVEN, INDEX

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", [c for c in INDEX if c["kind"] != "encdec"], ids=lambda case: case["case"])
def test_transformers_opens_a_converted_folder(case, tmp_path):
    convert(GIVEN / case["case"] / "model", "hf", tmp_path / "out")
    model, told = opened(tmp_path / "out")
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]
    refs = load_file(GIVEN / case["case"] / "refs.safetensors")
    with torch.no_grad():
        out = model(input_ids=refs["full.ids"])
    got = out.logits if hasattr(out, "logits") else out.last_hidden_state
    assert (got - refs["full.logits"]).abs().max() <= case["tolerance"]


PAIRS = {case["case"]: case["family"] for case in INDEX if case["kind"] == "encdec"}
MADE = {"MBart": "mbart", "Pegasus": "pegasus", "Blenderbot": "blenderbot"}


@pytest.mark.parametrize("source", ["folder", "own"])
@pytest.mark.parametrize("name", [*PAIRS, *MADE])
def test_transformers_writes_with_a_converted_encoder_decoder(name, source, tmp_path):
    """Out of a folder, and out of our own format, where ids and defaults of generation come from the spec."""
    import transformers

    folder = GIVEN / name / "model"
    if name in MADE:
        config = getattr(transformers, f"{name}Config")(**SMALL, forced_bos_token_id=5, num_beams=2)
        folder = tiny(getattr(transformers, f"{name}ForConditionalGeneration"), config, tmp_path / "made")
    path, loaded = folder, cutaway.load(folder)
    if source == "own":
        loaded.save(path := tmp_path / "own")
    written = convert(path, "hf", tmp_path / "out", family={**PAIRS, **MADE}[name])
    before, after = loaded.spec.generation, open_checkpoint(tmp_path / "out").record.generation
    assert after == before and written.notes == []
    theirs, back, told = peer(folder), *opened(tmp_path / "out")
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]
    assert set(back.state_dict()) == set(theirs.state_dict())
    pad = loaded.spec.generation.pad_id
    ids = batch(pad, 61)
    assert torch.equal(tiny_pairs.theirs(back, *ids), tiny_pairs.theirs(theirs, *ids))
    rows = [row[keep == 1] for row, keep in zip(*ids[:2], strict=True)]
    for options in ({}, {"num_beams": 1}, {"num_beams": 3, "length_penalty": 2.0}):
        chosen = {tiny_pairs.OURS[key]: value for key, value in options.items()}
        got = cutaway.generate(loaded.model, ids[0], before.replace(max_tokens=12, **chosen), mask=ids[1]).ids
        for row, new in zip(rows, got, strict=True):
            for model in (theirs, back):
                said = model.generate(row[None], max_new_tokens=12, use_cache=False, **options)
                assert said[0, 1:].tolist() == new, (options, model is back)


def opened(folder):
    """The folder opened by transformers in float32, and what it says of the tensors."""
    import transformers

    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, told = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    return model.eval(), told


def test_transformers_reads_the_tokenizer_of_a_converted_file(tmp_path, smollm2):
    import transformers

    convert(smollm2.path, "hf", tmp_path / "out", dtype="BF16")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "The capital of France is Paris.\n\n  Das heißt: 日本語 🙂"
    assert tokenizer(text)["input_ids"] == smollm2.encode(text)
    chat = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == smollm2.tokenizer.render_chat(
        chat, add_generation_prompt=False
    )
