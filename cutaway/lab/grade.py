"""How a typed answer is read: numbers with a point or a comma, fractions, and shapes in any usual form."""

from __future__ import annotations

import math
import re

from cutaway.errors import InputError

_DECIMAL = r"[+-]?(?:\d{1,15}(?:[.,]\d{0,15})?|[.,]\d{1,15})(?:[eE][+-]?\d{1,2})?"
_NUMBER = re.compile(rf"({_DECIMAL})(?:\s*/\s*({_DECIMAL}))?")
_SHAPE = re.compile(r"\d{1,9}(?:[,x]\d{1,9})*,?")
_LONGEST = 60


def parse_number(answer: str) -> float:
    """ "0,84", "0.84", "5/3" and "-1" as numbers. Raises InputError for anything else, a division by 0 included."""
    text = _text(answer).replace("\u2212", "-")
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise InputError(f"answer: {text!r} is not a number; write for example 2, -0.5, 0,5 or 2/3")
    top, bottom = (float((part or "1").replace(",", ".")) for part in found.groups())
    if bottom == 0:
        raise InputError(f"answer: {text!r} divides by 0; write a number")
    value = top / bottom
    if not math.isfinite(value):
        raise InputError(f"answer: {text!r} is too large; write a smaller number")
    return value


def parse_shape(answer: str) -> tuple[int, ...]:
    """ "10,8", "(10, 8)", "[10, 8]", "10x8" and "10 × 8" as (10, 8). Raises InputError for anything else."""
    text = _text(answer)
    inner = text[1:-1] if text[:1] + text[-1:] in ("()", "[]") else text
    inner = re.sub(r"\s*[,x]\s*|\s+", _separator, inner.strip().lower().replace("×", "x").replace("*", "x"))
    if _SHAPE.fullmatch(inner) is None:
        raise InputError(f"answer: {text!r} is not a shape; write for example (10, 8) or 10x8")
    return tuple(int(size) for size in re.findall(r"\d+", inner))


def _separator(found: re.Match[str]) -> str:
    return found.group().strip() or ","


def _text(answer: str) -> str:
    if not isinstance(answer, str) or len(answer) > _LONGEST or not answer.strip():
        raise InputError(f"answer: a text of 1 to {_LONGEST} characters is needed")
    return answer.strip()
