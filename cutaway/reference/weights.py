"""A model's weights by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import ArrayLike

from cutaway.errors import InputError
from cutaway.reference.functions import Array, real


class Weights(Mapping[str, Array]):
    """Weights by name, seen from under a prefix; it notes what was read, and a missing matrix is an error."""

    def __init__(self, arrays: Mapping[str, ArrayLike], prefix: str = "", used: set[str] | None = None) -> None:
        self.arrays, self.prefix = arrays, prefix
        self.used = set() if used is None else used

    def under(self, name: str) -> Weights:
        return Weights(self.arrays, f"{self.prefix}{name}.", self.used)

    def need(self, name: str) -> Array:
        if name not in self:
            raise InputError(f"weights: no {self.prefix}{name}, which the spec asks for")
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.need(name) if name.endswith("weight") else super().get(name, default)

    def __getitem__(self, name: str) -> Array:
        array = real(self.arrays[self.prefix + name])
        self.used.add(self.prefix + name)
        return array

    def __contains__(self, name: object) -> bool:
        return f"{self.prefix}{name}" in self.arrays

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self.prefix) for name in self.arrays if name.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
