"""Specs as text: TOML and JSON both ways, and the JSON Schema."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import ValidationError

from cutaway.errors import SpecError
from cutaway.spec.explain import explain
from cutaway.spec.model import ADAPTER, Model, Spec
from cutaway.spec.record import as_json

Format = Literal["toml", "json"]
HEADER = "# A Cutaway spec; what is not written has its default (docs/glossary.md).\n"


def parse(data: Any, where: str = "spec") -> Model:
    """A model's spec from plain JSON-like data. Raises SpecError with the path of each fault below `where`.

    >>> parse({"kind": "decoder", "d_model": 8, "vocab_size": 11, "context_length": 16, "layers": []}).d_model
    8
    """
    try:
        return ADAPTER.validate_json(as_json(data, where))
    except ValidationError as error:
        raise SpecError(explain(error, where, Spec)) from None


def load(path: str | Path) -> Model:
    """The spec in a file that ends in .toml or .json."""
    path = Path(path)
    return parse(read(read_text(path), format_of(path), str(path)), str(path))


def read(text: str, form: Format, where: str = "spec") -> dict[str, Any]:
    """The plain data that a TOML or JSON text holds, not yet a spec. Raises SpecError with the line of a fault."""
    try:
        data = tomllib.loads(text) if form == "toml" else json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise SpecError(f"{where}: nested too deeply for a spec") from None
    except ValueError as error:
        raise SpecError(f"{where}: not valid {form.upper()}: {_lower(str(error))}") from None
    if not isinstance(data, dict):
        raise SpecError(f"{where}: holds a {type(data).__name__}; a spec is a table of keys")
    return data


def to_toml(spec: Model, full: bool = False) -> str:
    """The spec as TOML that reads back equal; `full` writes every default too."""
    return HEADER + "\n" + tomli_w.dumps(spec.plain(full))


def to_json(spec: Model, full: bool = False) -> str:
    """The spec as JSON that reads back equal; `full` writes every default too."""
    return json.dumps(spec.plain(full), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a spec. It knows shapes and ranges; rules across fields are in `checks`."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Cutaway spec"}
    return head | ADAPTER.json_schema()


def format_of(path: Path) -> Format:
    """toml or json, by the file's ending."""
    match path.suffix.lower():
        case ".toml":
            return "toml"
        case ".json":
            return "json"
    raise SpecError(f"{path}: a spec file ends in .toml or .json, not '{path.suffix}'")


def read_text(path: Path) -> str:
    """The text of a file. Raises SpecError where there is none to read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; check the path") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start}); a spec is a TOML or JSON text") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {_lower(error.strerror or str(error))}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key '{twice}' stands twice in one table")
    return out


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
