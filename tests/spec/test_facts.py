"""Two specs compared in words: what reads alike is alike, whatever field was changed."""

from __future__ import annotations

import pytest

from cutaway import spec
from cutaway.errors import SpecError
from cutaway.spec.facts import by_layer, compared, facts
from tests.conformance.strategies import random_specs

SPECS = list(random_specs(60, seed=8))


WORDS = (
    "none head width shared per_head per_element first mean last eos d_model before_positions after_norm silu relu "
    "gelu tanh plain one_plus x normed softmax sigmoid softmax_after max top2 interleaved halves paper closed scalar "
    "channel"
).split()


def leaves(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path, data


def changed(data, path, value):
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = changed(data[path[0]], path[1:], value)
    return copy


def others(value):
    """Values that might stand there instead."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value * 2, value + 1, value / 2]
    if isinstance(value, list):
        return [value[1:]] if value else []
    return [word for word in WORDS if word != value]


@pytest.mark.parametrize("index", [pytest.param(i, marks=[pytest.mark.slow] * (i % 6 != 0)) for i in range(0, 60, 2)])
def test_any_changed_field_is_told(index):
    record = SPECS[index]
    plain, told = record.plain(full=True), 0
    for path, value in leaves(plain):
        if path[-1] in ("kind", "name"):
            continue
        for other in others(value):
            try:
                new = spec.parse(changed(plain, path, other))
            except SpecError:
                continue
            same = spec.settled(new) == spec.settled(record)  # says the same in another way
            if spec.problems(new) or (same and (new.generation, new.dropout) == (record.generation, record.dropout)):
                continue
            found = compared(record, new)
            idle = path[-1] == "eos_id" and record.head.pool != "eos"  # acts on nothing, so no words tell it
            assert found and (idle or all("." not in each.aspect for each in found)), (path, value, other)
            told += 1
    assert told > 30


@pytest.mark.parametrize("index", range(60))
def test_a_spec_differs_from_itself_in_nothing_and_from_any_other_in_something(index):
    record = SPECS[index]
    assert compared(record, record.replace(name="other")) == []
    assert compared(record, SPECS[index - 1])
    assert all(isinstance(said, str) for said in facts(record).values())


def test_the_words():
    told = {each.aspect: each[1:] for each in compared(spec.preset("gpt2"), spec.preset("llama"))}
    assert told["norm"] == ("LayerNorm with gain and shift (eps 1e-5)", "RMSNorm with gain (eps 1e-5)")
    assert told["layers"] == ("12", "30")
    assert told["attention heads"] == ("12 heads of 64", "9 heads of 64 on 3 of keys and values")
    assert told["positions"] == ("a learned table (1,024 rows)", "RoPE (base 100,000, halves paired)")


def test_digits_beyond_the_words_are_told_by_field():
    record = spec.preset("llama-tiny")
    other = record.replace(final_norm=spec.RMSNorm(eps=1.00000001e-5))
    assert [each.aspect for each in compared(record, other)] == ["final_norm.eps"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["a"] * 4, "a"),
        (["a", "b", "b"], "a in layer 0; b in the others"),
        (["a", "a", "b"] * 3, "b in layers 2, 5 … 8; a in the others"),
        (["b", "b", "a", "", "a", "b", "b"], "none in layer 3; a in layers 2, 4; b in the others"),
    ],
)
def test_layers_are_told_in_runs(said, words):
    assert by_layer(said) == words
