"""What a record may hold, read from its annotations: the one place that knows how a union or a tuple is written."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

RecordClass = type[BaseModel]


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation, nested unions opened: scalars, literals, tuples and record classes."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in members(part))
    return (annotation,)


def kinds(annotation: Any) -> dict[str, RecordClass]:
    """The record classes an annotation admits, by kind; one that has no kind is named ''."""
    found = (member for member in members(annotation) if isinstance(member, type) and issubclass(member, BaseModel))
    return {kind_of(record): record for record in found}


def kind_of(record: RecordClass) -> str:
    """The value of the record's `kind`, or ''."""
    field = record.model_fields.get("kind")
    return "" if field is None else get_args(field.annotation)[0]


def item(annotation: Any) -> Any:
    """What each item of a tuple is; None for anything else."""
    for member in members(annotation):
        if get_origin(member) is tuple:
            return get_args(member)[0]
    return None


def words(annotation: Any) -> tuple[str, ...]:
    """The words that an annotation admits."""
    literals = (member for member in members(annotation) if get_origin(member) is Literal)
    return tuple(word for literal in literals for word in get_args(literal))


def field_of(record: RecordClass, name: str) -> Any:
    """The annotation of a field."""
    return record.model_fields[name].annotation


@cache
def below(*records: RecordClass) -> dict[str, tuple[tuple[str, RecordClass], ...]]:
    """Where each field name stands at or below these records, nearest first: its dotted path and the record it is of.

    `*` in a path is any item of a tuple.
    """
    found: dict[str, tuple[tuple[str, RecordClass], ...]] = {}
    seen: set[RecordClass] = set()
    level = [("", record) for record in records]
    while level:
        deeper: list[tuple[str, RecordClass]] = []
        for prefix, record in level:
            if record in seen:
                continue
            seen.add(record)
            for name, field in record.model_fields.items():
                found[name] = (*found.get(name, ()), (prefix + name, record))
                inner = item(field.annotation)
                step, held = (f"{name}.", field.annotation) if inner is None else (f"{name}.*.", inner)
                deeper += [(prefix + step, each) for each in kinds(held).values()]
        level = deeper
    return found
