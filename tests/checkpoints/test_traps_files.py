"""Traps of files and of looking into a model that no other file of tests has, and the index of them all."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from safetensors.torch import load_file

import cutaway
from tests.checkpoints.test_given import GIVEN

TESTS = Path(__file__).resolve().parents[1]


def test_trap_28_nothing_is_folded_so_a_heard_run_is_the_plain_run():
    loaded = cutaway.load(GIVEN / "gpt2-a" / "model")
    ids = torch.arange(3, 20)[None]
    plain = loaded(ids)
    with torch.no_grad(), cutaway.listening(loaded.model, lambda name, x: None):
        heard = loaded.model(ids)
    assert (heard - plain).abs().max() <= 1e-5 * plain.abs().max()
    stored = load_file(GIVEN / "gpt2-a" / "model" / "model.safetensors")
    table = next(value for name, value in stored.items() if name.endswith("wte.weight"))
    assert torch.equal(loaded.model.get_parameter("embedding.tokens.weight"), table)  # not centred


def test_trap_31_square_matrices_of_gpt2_are_transposed_by_name_not_by_shape():
    loaded = cutaway.load(GIVEN / "gpt2-a" / "model")
    stored = load_file(GIVEN / "gpt2-a" / "model" / "model.safetensors")
    square = next(value for name, value in stored.items() if name.endswith("h.0.attn.c_proj.weight"))
    ours = loaded.model.get_parameter("blocks.0.attn.o_proj.weight")
    assert square.shape[0] == square.shape[1] and torch.equal(ours, square.T) and not torch.equal(ours, square)


def test_every_trap_of_sections_a_to_f_has_a_test():
    text = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    tested = {int(n) for n in re.findall(r"def test_trap_(\d+)", text)}
    assert set(range(1, 44)) - tested == set()
