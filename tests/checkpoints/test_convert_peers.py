"""What is written is opened by transformers, and gives what the handed references say."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from cutaway.checkpoints.convert import convert
from tests.checkpoints.test_given import GIVEN, INDEX

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", [c for c in INDEX if c["kind"] != "encdec"], ids=lambda case: case["case"])
def test_transformers_opens_a_converted_folder(case, tmp_path):
    import transformers

    convert(GIVEN / case["case"] / "model", "hf", tmp_path / "out")
    name = json.loads((tmp_path / "out" / "config.json").read_text())["architectures"][0]
    model, told = getattr(transformers, name).from_pretrained(
        tmp_path / "out", dtype=torch.float32, output_loading_info=True
    )
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]
    refs = load_file(GIVEN / case["case"] / "refs.safetensors")
    with torch.no_grad():
        out = model.eval()(input_ids=refs["full.ids"])
    got = out.logits if hasattr(out, "logits") else out.last_hidden_state
    assert (got - refs["full.logits"]).abs().max() <= case["tolerance"]


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
