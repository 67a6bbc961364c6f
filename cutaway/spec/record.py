"""The base of every spec record: frozen, strict, closed, and validated anew whenever it changes."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from cutaway.errors import SpecError
from cutaway.spec.explain import explain


class Record(BaseModel):
    """A frozen record of plain values. Two equal records are interchangeable and hash alike."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, data: Any, where: str = "spec") -> Self:
        """Build the record from plain JSON-like data; raises SpecError that names each bad key by its path."""
        try:
            return cls.model_validate_json(as_json(data, where))
        except ValidationError as error:
            raise SpecError(explain(error, where, cls)) from None

    def plain(self, full: bool = False) -> dict[str, Any]:
        """The record as JSON-like data: what is at its default is omitted unless `full`, `kind` never is."""
        out: dict[str, Any] = {}
        fields = type(self).model_fields
        for name, field in sorted(fields.items(), key=lambda pair: pair[0] != "kind"):
            value = getattr(self, name)
            default = not field.is_required() and value == field.get_default(call_default_factory=True)
            if full or name == "kind" or not default:
                out[name] = plain_value(value, full)
        return out

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as if written from scratch."""
        kept = {name: getattr(self, name) for name in type(self).model_fields}
        try:
            return type(self).model_validate(kept | changes)
        except ValidationError as error:
            raise SpecError(explain(error, type(self).__name__, type(self))) from None


def as_json(data: Any, where: str) -> bytes:
    """JSON bytes of plain data; raises SpecError for a value that has no place in a spec."""
    try:
        return json.dumps(data, allow_nan=False, default=_refuse).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError(f"{where}: {error}; use finite numbers, strings, booleans, lists and tables only") from None


def _refuse(value: Any) -> Any:
    raise TypeError(f"a value of type {type(value).__name__} has no place in a spec")


def plain_value(value: Any, full: bool) -> Any:
    """A field's value as JSON-like data."""
    if isinstance(value, Record):
        return value.plain(full)
    if isinstance(value, tuple):
        return [plain_value(item, full) for item in value]
    return value
