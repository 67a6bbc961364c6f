"""A foreign configuration, read strictly: every key is used, ignored by name, or an error."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from cutaway.errors import CheckpointError

_REQUIRED: Any = object()
Ours = TypeVar("Ours")
MOST = {"*_layers": 1024, "n_layer": 1024, "block_count": 1024, "*_experts": 1 << 16, "expert_count": 1 << 16}
"""Numbers of things that are made one by one: a damaged file must not fill the memory with them."""


class Config:
    """Takes keys out of a foreign configuration and remembers what became of each.

    `used`: keys read; `defaulted`: keys that were absent and the value that their own software takes then;
    `ignored`: keys without a meaning here, each with the reason. `tensors` gives the names of the checkpoint's tensors,
    for what a file says by having a tensor or not.
    """

    def __init__(self, data: dict[str, Any], where: str, tensors: Callable[[], Collection[str]] | None = None) -> None:
        self.data, self.where, self.tensors = data, where, tensors
        self.used: dict[str, Any] = {}
        self.defaulted: dict[str, Any] = {}
        self.ignored: dict[str, str] = {}
        self.tables: list[Config] = []

    def has(self, key: str) -> bool:
        """Whether the key is there with a value (null counts as absent)."""
        return self.data.get(key) is not None

    def holds(self, tensor: str, default: bool) -> bool:
        """Whether the checkpoint has a tensor of this name (a pattern with *); `default` where no tensors are there."""
        if self.tensors is None:
            return default
        return bool(fnmatch.filter(self.tensors(), tensor))

    def take(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of a key, or of the first of several names `a|b`; absent: `default`, noted, or an error."""
        for name in key.split("|"):
            if name in self.data:
                self.used[name] = self.data[name]
            if self.has(name):
                return self.data[name]
        if default is _REQUIRED:
            raise CheckpointError(f"{self.where}: {key.split('|')[0]} is missing, and nothing can stand for it")
        self.defaulted[key.split("|")[0]] = default
        return default

    def also(self, key: str, other: str) -> None:
        """`other` is a second name of `key`, from now on read under that; where both are there they must agree."""
        if other not in self.data:
            return
        self.used[other] = self.data[other]
        if self.has(key) and self.has(other) and self.data[key] != self.data[other]:
            raise CheckpointError(
                f"{self.where}: {key} is {self.data[key]!r} and {other} is {self.data[other]!r}, two names of one thing"
            )
        if not self.has(key):
            self.data = self.data | {key: self.data[other]}

    def inner(self, key: str) -> Config:
        """A table inside this configuration, whose keys are accounted for along with the others."""
        table = self.take(key, {})
        if not isinstance(table, dict):
            raise CheckpointError(f"{self.where}: {key} is {table!r}, expected a table")
        self.tables.append(Config(table, f"{self.where}: {key}"))
        return self.tables[-1]

    def nullable(self, key: str, absent: Any = _REQUIRED) -> Any:
        """The value of a key that may be null (then None); `absent`, noted, where there is no such key."""
        if key in self.data:
            self.used[key] = self.data[key]
            return self.data[key]
        return self.take(key, absent)

    def assume(self, key: str, value: Any) -> None:
        """From now on an absent key has the value that their own software takes then."""
        if not self.has(key):
            self.data = self.data | {key: value}
            self.defaulted[key] = value

    def integer(self, key: str, default: Any = _REQUIRED) -> int:
        """A whole number; where so many layers or experts would be built, within what can be meant."""
        value = self._typed(key, default, int, "a whole number")
        for pattern, most in MOST.items():
            if value > most and any(fnmatch.fnmatchcase(name, pattern) for name in key.split("|")):
                raise CheckpointError(f"{self.where}: {key.split('|')[0]} is {value}; more than {most} cannot be meant")
        return value

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        return float(self._typed(key, default, (int, float), "a number"))

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.where}: {key} is {value!r}, expected true or false")
        return value

    def choice(self, key: str, names: Mapping[Any, Ours], default: Any = _REQUIRED) -> Ours:
        """Our name for a value of theirs."""
        value = self.take(key, default)
        if value not in names:
            raise CheckpointError(f"{self.where}: {key} is {value!r}; known are {', '.join(map(str, sorted(names)))}")
        return names[value]

    def expect(self, key: str, *values: Any) -> None:
        """The key is absent or has one of these values; anything else is a model that we would run wrongly."""
        if key in self.data:
            self.used[key] = self.data[key]
            if self.data[key] not in values:
                raise CheckpointError(
                    f"{self.where}: {key} is {self.data[key]!r}, which is not supported (only {values[0]!r})"
                )

    def ignore(self, reasons: dict[str, str]) -> None:
        """Keys (patterns with *) that change nothing here."""
        for key in self.data:
            for pattern, reason in reasons.items():
                if key not in self.used and fnmatch.fnmatchcase(key, pattern):
                    self.ignored[key] = reason
        for table in self.tables:
            table.ignore(reasons)

    def finish(self) -> None:
        """Raises CheckpointError for keys that nobody took."""
        left = [key for key in self.data if key not in self.used and key not in self.ignored]
        if left:
            close = difflib.get_close_matches(left[0], [*self.used, *self.defaulted], n=1)
            hint = f" (near {close[0]})" if close else ""
            raise CheckpointError(
                f"{self.where}: {', '.join(sorted(left))}{hint} not understood; a key that is not understood could "
                "change what the model computes, so it is not loaded"
            )
        for table in self.tables:
            table.finish()

    def _typed(self, key: str, default: Any, kinds: Any, what: str) -> Any:
        value = self.take(key, default)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise CheckpointError(f"{self.where}: {key} is {value!r}, expected {what}")
        return value
