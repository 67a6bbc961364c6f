"""Each script of `examples/` runs on a tiny model, and on the real one in the slow tests, where it must find things."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from cutaway import build, preset, spec
from cutaway.loaded import Loaded
from cutaway.tokenizers.tokenizer import Tokenizer
from cutaway.tokenizers.train import train
from tests.examples.test_learn import EXAMPLES, module

FOUND = {
    "logit_lens": r"' Paris' is the likeliest token from blocks\.29 on",
    "attention_of_a_head": r"weight on the previous token: 0\.[6-9]",
    "activation_patching": r"the stream before block \d at ' France'/' Russia' restores (9\d|10\d)%",
    "steering": r"plain:.*\n\+1 times:  a great(.*\n)+-1 times:  going to be bad",
    "knock_out_induction": r"all heads: +([4-9]\d)% copied\nwithout induction: +[0-9]% copied\n"
    r"without random heads: +[2-9]\d% copied",
    "direct_attribution": r"logit of ' Paris': (\d+\.\d{2})\d*, sum of the parts: \1",
    "record_generation": r"6 steps: \[\(1, 4, 576\), \(1, 1, 576\)(.*\n)+read back: 31 taps, equal: True",
    "remove_a_part": r"without nothing +2\.\d+ .*' west'\n(.*\n)+without final_norm +\d{3}\.",
    "compare_types": r"part ways at blocks\.\d(.*\n)+.*the largest number is 2\d{4}, in blocks\.\d+\.ffn\.out",
    "integrated_gradients": r"together the tokens account for (9[5-9]|10[0-5])%",
    "export_to_hugging_face": r"ours and theirs are equal within 1e-04",
}
"""What the script must print on the real model."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a model of random weights and a tokenizer whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("examples") / "tiny"
    words = train(["x"], 257)
    record = spec.set_values(preset("llama-tiny"), {"vocab_size": words.vocab_size})
    model = build(record, seed=0).eval()
    for parameter in model.parameters():
        parameter.data *= 3.0
    Loaded(model, Tokenizer(words.backend, words.special, {}), "").save(folder)
    return str(folder)


def test_every_script_is_tested_and_short():
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert set(scripts) == {*FOUND, "learn", "learn_tasks"} and len(FOUND) >= 10
    assert {name for name, text in scripts.items() if len(text.splitlines()) >= 50} == {"learn_tasks"}  # no script
    assert all(ast.get_docstring(ast.parse(text)) for text in scripts.values())


@pytest.mark.parametrize("name", [each for each in FOUND if each != "export_to_hugging_face"])
def test_it_runs_on_a_tiny_model(name, tiny, capsys):
    module(name).main(tiny)
    assert len(capsys.readouterr().out.splitlines()) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_it_finds_in_the_real_model_what_is_there(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    module(name).main()
    out = capsys.readouterr().out
    assert re.search(FOUND[name], out), out
