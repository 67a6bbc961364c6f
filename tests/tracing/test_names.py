"""Names of taps: those of other tools, the page, and what `cutaway taps` tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cutaway import build, generate, preset, spec
from cutaway.cli.taps import show_taps
from cutaway.errors import InputError
from cutaway.tap import matcher
from cutaway.tracing.edit import edit, scale
from cutaway.tracing.names import GLOSSARY, LETTERS, describe, kind_of, ours
from cutaway.tracing.record import record
from cutaway.tracing.tap_page import page

ROOT = Path(__file__).resolve().parents[2]
IDS = torch.tensor([[5, 3, 9, 1]])


def test_the_page_is_made_from_the_glossary():
    text = (ROOT / "docs" / "taps.md").read_text(encoding="utf-8")
    assert text == page(), "run `python -m cutaway.tracing.tap_page > docs/taps.md`"
    assert all(f"| `{entry.name}` | {entry.letters} |" in text for entry in GLOSSARY)


def test_every_letter_is_explained():
    assert {letter for entry in GLOSSARY for letter in entry.axes} == set(LETTERS)


@pytest.mark.parametrize(
    ("theirs", "wanted"),
    [
        ("hidden_states[-1]", "final"),
        ("hidden_states[-2]", "blocks[-1].resid_pre"),
        ("hidden_states[1:-1]", "blocks[1:].resid_pre"),
        ("hidden_states[-3:-1]", "blocks[-2:].resid_pre"),
        ("hidden_states[ -1 ]", "final"),
        ("hidden_states[0:-1:2]", "blocks[0::2].resid_pre"),
        ("hidden_states[--1]", "blocks[--1].resid_pre"),
        ("hidden_states.*", "blocks.*.resid_pre"),
        ("encoder_attentions[0]", "encoder.blocks[0].attn.pattern"),
        ("decoder.3.cross_attn.hook_pattern", "decoder.blocks.3.cross.pattern"),
        ("encoder.0.mlp.hook_post", "encoder.blocks.0.ffn.hidden"),
        ("blocks[2:4].hook_resid_pre", "blocks[2:4].resid_pre"),
        ("blocks.0.attn.q", "blocks.0.attn.q"),
    ],
)
def test_other_names_are_understood(theirs, wanted):
    assert ours(theirs) == wanted


def test_hidden_states_are_counted_as_hugging_face_does():
    model = build(preset("gpt2-tiny"), seed=0).eval()
    with torch.no_grad(), record(model, "hidden_states[-1]", "hidden_states[-2]") as run:
        model(IDS)
    assert run.names == ["blocks.1.resid_pre", "final"]
    assert torch.equal(run["hidden_states[-1]"], run["final"])
    for span in ("2:", "::2", "-1:3"):
        with pytest.raises(InputError, match="runs to the state after the final norm"):
            ours(f"hidden_states[{span}]")


def test_an_edit_takes_the_names_of_others():
    model = build(preset("modern-tiny"), seed=0).eval()
    with torch.no_grad():
        with edit(model, {"blocks.1.attn.z": scale(3.0)}):
            wanted = model(IDS)
        with edit(model, {"blocks.1.attn.hook_z": scale(3.0)}) as report:
            assert torch.equal(model(IDS), wanted)
    assert list(report.changes) == ["blocks.1.attn.z"]


def latent():
    part = spec.Latent(n_heads=2, kv_rank=6, nope_dim=4, rope_dim=2, value_dim=4)
    block = spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=part),)),))
    return spec.Decoder(d_model=8, vocab_size=20, context_length=16, layers=(block,))


def test_a_kind_of_part_has_its_own_axes():
    model = latent()
    assert describe("blocks.0.attn.v", model).letters == "B N S H"
    assert describe("blocks.0.attn.q", model).letters == "B N T H"
    assert describe("blocks.0.attn.v", preset("gpt2-tiny")).letters == "B K T H"


def test_a_kind_has_no_number_of_a_layer_or_an_expert():
    assert kind_of("blocks.11.ffn.experts.12.pre") == "*.ffn.experts.*.pre"
    assert kind_of("encoder.blocks.10.resid.2") == "encoder.*.resid.2"


def test_the_steps_of_latent_attention_join_to_the_run_without_a_cache():
    model = build(latent(), seed=0, dtype=torch.float64).eval()
    with record(model, "blocks.0.attn.*") as run:
        out = generate(model, [[5, 3, 9]], spec.Generation(max_tokens=4)).ids[0]
    with torch.no_grad(), record(model, "blocks.0.attn.*") as whole:
        model(torch.tensor([[5, 3, 9, *out[:-1]]]))
    for name in whole:
        torch.testing.assert_close(run[name], whole[name], rtol=1e-9, atol=1e-9, msg=name)


def test_taps_tells_axes_sizes_formulas_and_other_names(capsys):
    show_taps("modern-tiny", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["blocks.1.attn.q"]["shape"] == [1, 4, 3, 16]
    assert found["blocks.1.attn.q"]["letters"] == "B N T H"
    assert found["blocks.1.attn.q"]["aliases"] == ["blocks.1.attn.hook_q"]
    show_taps("modern-tiny", as_json=False)
    text = capsys.readouterr().out
    assert "blocks.*.attn.q  B N T H: 1 × 4 × 3 × 16  layers 0–1" in text
    assert "hidden_states[i]" in text and "q_norm(W_q in)" in text


def test_many_stars_are_one():
    means = matcher([30 * "*" + "q"])
    assert means("blocks.0.attn.q") and not means("blocks.0.attn.k" * 4)


def test_a_range_of_step_0_is_refused():
    with pytest.raises(InputError, match="neither a layer nor a range"):
        matcher(["blocks[::0].attn.q"])
