"""The words of the labs: one file a language, `content/<language>/labs.toml`, one table a lab."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cutaway.errors import InputError

CONTENT = Path(__file__).parents[1] / "content"


@dataclass(frozen=True)
class Say:
    """One lab's texts by key; a key of an inner table is written "title.attn"."""

    texts: dict[str, str]
    joined: str

    def __call__(self, key: str, **values: Any) -> str:
        """The text with its places {name} filled."""
        return self.texts[key].format_map(values)

    def list(self, names: Sequence[str]) -> str:
        """Several names as one, as the language joins them."""
        return self.joined.join(names)


@cache
def words(lab: str, language: str) -> Say:
    """A lab's texts. Raises InputError for a language that has none."""
    file = CONTENT / language / "labs.toml"
    if not language.isalnum() or not file.is_file():
        raise InputError(f"language: {language[:40]!r} has no texts; each language has a folder in {CONTENT.name}")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return Say(_flat(tables[lab]), tables["joined"])


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
