"""What a failed validation says: each fault once, with its path, what is wrong, and what would be right."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from pydantic import ValidationError

from cutaway.spec.fields import RecordClass, below, field_of, item, kinds, words

MOST = 4


class _Fault(NamedTuple):
    """A fault at its place: the path as a user writes it, and what that place may hold."""

    path: tuple[str, ...]
    holds: Any
    owner: RecordClass | None
    raw: Any


def explain(error: ValidationError, where: str, annotation: Any) -> str:
    """One line for a validation error of data that should be what the annotation says."""
    faults = [_locate(fault, annotation) for fault in error.errors(include_url=False)]
    places: dict[tuple[str, ...], list[_Fault]] = {}
    for fault in faults:
        places.setdefault(fault.path, []).append(fault)
    roots = [path for path in places if not any(_above(path, other) for other in places)]
    # a misspelt key comes first: that another is missing may follow from it
    roots.sort(key=lambda path: places[path][0].raw["type"] != "extra_forbidden")
    lines: dict[tuple[str, str], list[str]] = {}  # the same fault in many layers is told once
    for path in roots:
        lines.setdefault((path[-1] if path else "", _say(places[path])), []).append(".".join([where, *path]))
    told = [f"{paths[0]}: {text}{_elsewhere(len(paths) - 1)}" for (_, text), paths in lines.items()]
    rest = [f"and {len(told) - MOST} more"] if len(told) > MOST else []
    return "; ".join(told[:MOST] + rest)


def nearest(wrong: str, right: Any, cutoff: float = 0.6) -> str | None:
    """The word among the right ones that is spelled most alike, if any comes near."""
    close = difflib.get_close_matches(wrong, sorted(right), n=1, cutoff=cutoff)
    return close[0] if close else None


def unknown_key(wrong: str, *records: RecordClass) -> str:
    """What to write instead of a key that these records lack."""
    own, deeper = {name for record in records for name in record.model_fields}, below(*records)
    close = wrong if wrong in deeper else nearest(wrong, own) or nearest(wrong, deeper, cutoff=0.8)
    if close:
        return f"the nearest right key is '{deeper[close][0][0]}'"
    return f"the right keys are {', '.join(sorted(own))}"


def _above(path: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """A fault whose place holds another fault only follows from it."""
    return len(path) < len(other) and other[: len(path)] == path


def _locate(fault: Any, annotation: Any) -> _Fault:
    """Follow pydantic's location through the annotations; its own steps (a union's tag, the branch tried) fall out."""
    path: list[str] = []
    here, owner = annotation, None
    for step in fault["loc"]:
        records = kinds(here)
        if isinstance(step, int):
            here, owner = item(here), None
        elif len(records) > 1:
            here = records[step]
            continue
        elif len(records) == 1:
            (owner,) = records.values()
            here = field_of(owner, step) if step in owner.model_fields else None
        else:
            break
        path.append(str(step))
    if fault["type"].startswith("union_tag"):
        path.append("kind")
    return _Fault(tuple(path), here, owner, fault)


def _say(faults: list[_Fault]) -> str:
    first = faults[0]
    raw, kind = first.raw, first.raw["type"]
    if kind == "extra_forbidden" and first.owner is not None:
        return f"unknown key; {unknown_key(first.path[-1], first.owner)}"
    if kind == "missing":
        return "missing; give it a value"
    if kind == "union_tag_invalid":
        return _one_of(raw["ctx"]["tag"], kinds(first.holds))
    if kind == "union_tag_not_found":
        return f"missing; say which: {', '.join(kinds(first.holds))}"
    if kind.endswith("_type") and kinds(first.holds):
        return f"should be a table of keys, got {_short(raw['input'])}"
    if kind == "json_invalid":
        return f"{raw['ctx']['error']}"
    if kind == "too_short":
        return "is empty; give it at least one item"
    if kind == "literal_error" and isinstance(raw["input"], str):
        return _one_of(raw["input"], words(first.holds))
    wanted = dict.fromkeys(fault.raw["msg"].removeprefix("Input should be ") for fault in faults)
    return f"should be {' or '.join(wanted)}, got {_short(raw['input'])}"


def _one_of(wrong: str, right: Any) -> str:
    close = nearest(wrong, right, cutoff=0.5)
    hint = f"; the nearest is '{close}'" if close else ""
    return f"{_short(wrong)} is not one of {', '.join(map(str, right))}{hint}"


def _elsewhere(count: int) -> str:
    return f" (and at {count} other place{'s' if count > 1 else ''})" if count else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
