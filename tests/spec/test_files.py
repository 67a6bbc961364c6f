"""Specs as text: what is written reads back equal, and what cannot be read is refused in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutaway import spec
from cutaway.errors import SpecError
from cutaway.spec.pairs import UNIONS, kinds
from tests.conformance.strategies import any_spec

BASE = spec.preset("modern-tiny")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60)
@given(any_spec(), st.booleans())
def test_toml_and_json_read_back_equal(record, full):
    assert spec.parse(spec.read(spec.to_toml(record, full), "toml")) == record
    assert spec.parse(spec.read(spec.to_json(record, full), "json")) == record


@settings(max_examples=50)
@given(FINITE, st.integers(1, 2**63 - 1), st.text(st.characters(codec="utf-8")))
@example(5e-324, 2**63 - 1, "\x00\x7f\r\n\"'''\\")
@example(0.1 + 0.2, 1, "\ufeff#[x]")
def test_every_number_and_text_survives(number, whole, text):

    record = BASE.replace(
        d_model=whole, name=text, generation=spec.Generation(presence_penalty=number, stop_strings=(text,))
    )
    for form, write in (("toml", spec.to_toml), ("json", spec.to_json)):
        back = spec.parse(spec.read(write(record), form))
        assert back == record
        assert back.generation.presence_penalty.hex() == number.hex() or number == 0.0
    with pytest.raises(SpecError, match="d_model.*9223372036854775807"):  # what TOML, and torch, can write
        BASE.replace(d_model=2**63 - 1 + whole)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_load_reads_what_was_written(tmp_path, ending):
    record = spec.preset("t5-tiny")
    path = tmp_path / f"a.{ending}"
    path.write_text({"toml": spec.to_toml, "json": spec.to_json}[ending](record), encoding="utf-8")
    assert spec.load(path) == spec.load(str(path)) == record


def test_a_byte_order_mark_and_other_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "a.toml"
    text = spec.to_toml(spec.preset("gpt2-tiny")).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert spec.load(path) == spec.preset("gpt2-tiny")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"kind = 'decoder'\nd_model = [1\n", "not valid TOML"),
        ("a.toml", b"d_model = 1\nd_model = 2\n", "line 2"),
        ("a.toml", b"\x00\xff\xfe", "not UTF-8 text (byte 1)"),
        ("a.toml", b"kind = 'decoder'\nname = 1979-05-27\n", "a value of type date has no place in a spec"),
        ("a.toml", b"kind = 'decoder'\nd_model = nan\n", "finite numbers"),
        ("a.toml", b"", "a.toml.kind: missing; say which"),
        (
            "a.toml",
            b"kind = 'llama'\n",
            "a.toml.kind: 'llama' is not one of decoder, prefix, encoder, encoder_decoder, image_encoder",
        ),
        ("a.json", b'{"kind": "decoder", "kind": "encoder"}', "the key 'kind' stands twice in one table"),
        ("a.json", b"[1, 2]", "holds a list; a spec is a table of keys"),
        ("a.json", b'"decoder"', "holds a str; a spec is a table of keys"),
        ("a.json", b"{", "not valid JSON"),
        ("a.json", b'{"a":' * 100_000, "nested too deeply"),
        ("a.json", b'{"d_model": 1' + b"0" * 5000 + b"}", "not valid JSON"),
        ("a.yaml", b"kind: decoder", "a spec file ends in .toml or .json, not '.yaml'"),
        ("a", b"", "a spec file ends in .toml or .json"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SpecError) as caught:
        spec.load(tmp_path / name)
    told = str(caught.value)
    assert message in told
    assert str(tmp_path / name) in told
    assert "\n" not in told


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(SpecError, match="no such file; check the path"):
        spec.load(tmp_path / "nowhere.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(SpecError, match="cannot be read: is a directory"):
        spec.load(tmp_path / "folder.toml")


def test_schema_knows_each_kind_and_forbids_other_keys():
    schema = spec.schema()
    json.dumps(schema)
    assert set(schema["discriminator"]["mapping"]) == {
        "decoder",
        "prefix",
        "encoder",
        "encoder_decoder",
        "image_encoder",
    }
    for union in UNIONS.values():
        for record in kinds(union).values():
            told = schema["$defs"][record.__name__]
            assert told["additionalProperties"] is False
            assert set(told["properties"]) == set(record.model_fields)
            assert set(told.get("required", ())) == {n for n, f in record.model_fields.items() if f.is_required()}
