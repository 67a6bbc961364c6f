"""The glossary tells every field of every record, each under the heading of its record."""

from __future__ import annotations

import re
from pathlib import Path

from cutaway.spec.fields import below, kind_of, kinds
from cutaway.spec.model import Decoder, Encoder, PrefixDecoder, Spec

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", TEXT, re.M | re.S))


def heading(record):
    return f"{record.__name__}, `{kind_of(record)}`" if kind_of(record) else record.__name__


def fields_by_record():
    found = {}
    for name, places in below(*kinds(Spec).values()).items():
        for _, record in places:
            found.setdefault(record, set()).add(name)
    return found


def told(section):
    bullets = re.findall(r"^- ((?:`\w+`,?\s*)+):", section, re.M)
    return {word for bullet in bullets for word in re.findall(r"`(\w+)`", bullet)}


def test_every_field_of_every_record_is_told_and_no_other():
    one_stack = {Decoder, PrefixDecoder, Encoder}  # told together under the last of them
    for record, names in fields_by_record().items():
        section = SECTIONS[heading(Encoder if record in one_stack else record)]
        assert told(section) == names - {"kind"}, heading(record)


def test_every_heading_is_a_record():
    assert set(SECTIONS) == {heading(record) for record in fields_by_record()}
