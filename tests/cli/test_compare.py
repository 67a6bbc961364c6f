"""`cutaway compare` and `cutaway trace numerics`, as a user meets them."""

from __future__ import annotations

import json

import pytest


def said(done):
    """What stands before the tables, as one line."""
    return " ".join(done.out.partition("\n\n")[0].split())


def test_a_model_and_itself_are_equal(cutaway, tiny):
    done = cutaway("compare", tiny, tiny, "the capital")
    assert done.status == 0 and "equal bit for bit" in said(done)
    assert max(map(len, done.lines)) <= 80


def test_another_type_is_within_its_rounding_and_a_stricter_one_is_not(cutaway, tiny):
    assert cutaway("compare", tiny, f"{tiny}:float64").status == 0
    done = cutaway("compare", tiny, f"{tiny}:float64", "--tolerance", "1e-12", "--json")
    data = json.loads(done.out)
    assert done.status == 1 and "they part ways at" in data["said"]
    assert data["tables"][0]["rows"][0]["tap"] == "positions"


def test_each_tensor_has_a_row_if_asked(cutaway, tiny):
    rows = [line.split()[0] for line in cutaway("compare", tiny, f"{tiny}:fused", "--each").lines if line]
    assert "blocks.1.attn.z" in rows and "blocks.1.attn.pattern" not in rows


def test_numerics_says_the_same_in_each_form(cutaway, tiny, tmp_path):
    done = cutaway("trace", "numerics", tiny, "the capital of France")
    assert done.status == 0 and "no NaN and no infinity" in said(done)
    assert max(map(len, done.lines)) <= 80
    data = json.loads(cutaway("trace", "numerics", tiny, "the capital of France", "--json").out)
    assert data["said"] == said(done)
    assert [table["title"] for table in data["tables"]] == [line for line in done.lines if line in TITLES]
    page = tmp_path / "page.html"
    cutaway("trace", "numerics", tiny, "the capital of France", "--html", page)
    text = page.read_text(encoding="utf-8")
    assert all(title in text for title in TITLES) and "<script" not in text


TITLES = ["Ranges", "Relative error against float64", "Relative error of each block alone, given the exact stream"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "gpt2-tiny", "gpt2-tiny:int9"), "FOLDER:transformers"),
        (("compare", "gpt2-tiny", "gpt2-tiny", "a text"), "no tokenizer"),
        (("compare", "gpt2-tiny", "nowhere"), "no such"),
        (("compare", "gpt2-tiny", "t5-tiny"), "one has an encoder and a decoder"),
        (("trace", "numerics", "gpt2-tiny", "a text"), "no tokenizer"),
    ],
)
def test_mistakes_are_one_line(cutaway, words, message):
    done = cutaway(*words)
    assert done.status == 2 and message in done.err and "Traceback" not in done.err
