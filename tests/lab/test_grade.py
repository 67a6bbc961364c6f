"""How typed answers are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.lab.grade import parse_number, parse_shape


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), (" 1.67 ", 1.67), ("1,67", 1.67), ("5/3", 5 / 3), ("2 / 3", 2 / 3), ("-0.5", -0.5), ("−0,5", -0.5),
        ("+3", 3), (".5", 0.5), ("7.", 7), ("1e-3", 0.001), ("-1/2", -0.5), ("0,5/0,25", 2), ("٣", 3),
    ],
)  # fmt: skip
def test_a_number_in_any_usual_form(text: str, value: float) -> None:
    assert parse_number(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", " ", "two", "1/0", "1//2", "1,2,3", "nan", "inf", "1e999", "0x10", "1_0", "1 2"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="answer"):
        parse_number(text)


@pytest.mark.parametrize(
    "text", ["10,8", "(10, 8)", "[10, 8]", "10x8", "10 x 8", "10×8", "10 8", "(10,8,)", "10X8", " ( 10 , 8 ) ", "10*8"]
)
def test_a_shape_in_any_usual_form(text: str) -> None:
    assert parse_shape(text) == (10, 8)


def test_a_shape_of_one_or_three_sizes() -> None:
    assert parse_shape("(5,)") == (5,)
    assert parse_shape("2x5x8") == (2, 5, 8)


@pytest.mark.parametrize("text", ["", "(10, 8", "10;8", "ten by eight", "1.5,2", "-1,2", "()", "(,)", "10,,8", "10x"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="answer"):
        parse_shape(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_number, parse_shape):
        try:
            parse(text)
        except InputError as error:
            assert str(error).startswith("answer: ")
