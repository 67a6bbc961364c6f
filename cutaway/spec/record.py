"""The base of every spec record: frozen, strict, closed, and validated anew whenever it changes."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cutaway.errors import SpecError


class Record(BaseModel):
    """A frozen record of plain values. Two equal records are interchangeable and hash alike."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, data: Any, where: str = "spec") -> Self:
        """Build the record from plain JSON-like data; raises SpecError that names each bad key by its path."""
        try:
            return cls.model_validate_json(_as_json(data, where))
        except ValidationError as error:
            raise SpecError(explain(error, where, data)) from None

    def plain(self) -> dict[str, Any]:
        """The record as JSON-like data: what is left at its default is omitted, `kind` never is."""
        return _pruned(self)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as if written from scratch."""
        kept = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            return type(self).model_validate(kept | changes)
        except ValidationError as error:
            raise SpecError(explain(error, type(self).__name__, changes)) from None


def _as_json(data: Any, where: str) -> bytes:
    import json

    try:
        return json.dumps(data, allow_nan=False, default=_refuse).encode()
    except (TypeError, ValueError) as error:
        raise SpecError(f"{where}: {error}; use numbers, strings, booleans, lists and tables only") from None


def _refuse(value: Any) -> Any:
    raise TypeError(f"a value of type {type(value).__name__} has no place in a spec")


def _pruned(record: Record) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if name != "kind" and not field.is_required() and value == field.get_default(call_default_factory=True):
            continue
        out[name] = _plain_value(value)
    return out


def _plain_value(value: Any) -> Any:
    if isinstance(value, Record):
        return _pruned(value)
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    return value


def explain(error: ValidationError, where: str, data: Any = None) -> str:
    """One line for a validation error: each fault with its path, what is wrong, and the nearest right choice."""
    faults = error.errors(include_url=False)
    lines = [_explain_one(fault, where, data) for fault in faults[:4]]
    if len(faults) > 4:
        lines.append(f"and {len(faults) - 4} more")
    return "; ".join(lines)


def _explain_one(fault: Any, where: str, data: Any) -> str:
    path = ".".join([where, *_readable(fault["loc"], data)])
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{path}: unknown key{_nearest(fault['loc'], data)}"
    if kind == "missing":
        return f"{path}: missing; give it a value"
    if kind == "union_tag_invalid":
        return f"{path}.kind: {context['tag']!r} is not one of {context['expected_tags'].replace(chr(39), '')}"
    if kind == "union_tag_not_found":
        return f"{path}.kind: missing; say which kind it is"
    if kind in ("value_error", "assertion_error"):
        return f"{path}: {context.get('error', fault['msg'])}"
    return f"{path}: {fault['msg'][0].lower()}{fault['msg'][1:]}, got {_short(fault['input'])}"


def _readable(loc: tuple[int | str, ...], data: Any) -> list[str]:
    """The path without pydantic's own steps (the tag of a union, the branch that was tried)."""
    out, here = [], data
    for step in loc:
        if isinstance(here, dict) and step in here:
            here = here[step]
        elif isinstance(here, (list, tuple)) and isinstance(step, int) and step < len(here):
            here = here[step]
        elif step is not loc[-1] or (isinstance(here, dict) and step == here.get("kind")) or not isinstance(here, dict):
            continue
        out.append(str(step))
    return out


def _nearest(loc: tuple[int | str, ...], data: Any) -> str:
    wrong = str(loc[-1])
    close = difflib.get_close_matches(wrong, sorted(ALL_FIELDS), n=1, cutoff=0.5)
    return f"; the nearest right key is {close[0]!r}" if close else "; `cutaway spec schema` lists the right ones"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


ALL_FIELDS: set[str] = set()
