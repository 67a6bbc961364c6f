"""The parity record of a checkpoint: what of it was read, and how close its numbers come to those of others.

A record lies beside the cache, with marks of the files it speaks of.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cutaway.checkpoints.cache import cache_dir
from cutaway.checkpoints.mapped import replacing
from cutaway.errors import CheckpointError

TOLERANCE = 1e-4
"""How far float32 may be from float64, as a share of the largest number of the layer."""
PEER_TOLERANCE = 1e-3
"""How far logits may be apart, as a share of the largest one, where both compute in float32."""


@dataclass(frozen=True)
class Peer:
    """What a peer said: the worst difference of the logits and at how many positions the likeliest token is the same.

    `exact`: both compute in float32 from the same numbers, so the difference decides; else (llama.cpp rounds what it
    multiplies with packed weights) only positions count whose two likeliest tokens are further apart than that
    difference. `said` tells why a peer was not asked or failed; such a one does not count.
    """

    name: str
    said: str = ""
    worst: float = 0.0
    largest: float = 0.0
    n_same: int = 0
    n_sure: int = 0
    exact: bool = True

    @property
    def agrees(self) -> bool:
        if self.said:
            return True
        if self.exact:
            return self.worst <= PEER_TOLERANCE * max(1.0, self.largest)
        return self.n_same == self.n_sure


@dataclass(frozen=True)
class Layer:
    """The worst difference of one state from float64, and the largest number in it."""

    name: str
    worst: float
    largest: float

    @property
    def close(self) -> bool:
        return self.worst <= TOLERANCE * max(1.0, self.largest)


@dataclass
class Parity:
    """What `verify` found. `files` marks the files: name, bytes, time of the last change in nanoseconds."""

    path: str
    family: str
    made: str
    version: str
    files: list[list[Any]]
    read: dict[str, Any] = field(default_factory=dict)
    assumed: dict[str, Any] = field(default_factory=dict)
    ignored_keys: dict[str, str] = field(default_factory=dict)
    n_tensors: int = 0
    copies: list[str] = field(default_factory=list)
    ignored_tensors: dict[str, str] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    layers: list[Layer] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        """Whether every layer is close to float64 and no peer that was asked says something else."""
        return all(layer.close for layer in self.layers) and all(peer.agrees for peer in self.peers)

    @property
    def stale(self) -> bool:
        """Whether the files have changed since."""
        return self.files != marks(Path(self.path))

    @property
    def worst(self) -> Layer:
        """The layer that is farthest from float64, measured by its largest number."""
        return max(self.layers, key=lambda layer: layer.worst / max(1.0, layer.largest))


def marks(path: Path) -> list[list[Any]]:
    """Name, size and time of the last change of the files of a checkpoint."""
    files = (
        [path]
        if path.is_file()
        else sorted(p for p in path.glob("*") if p.suffix in (".json", ".safetensors", ".toml"))
    )
    return [[file.name, (stat := file.stat()).st_size, stat.st_mtime_ns] for file in files]


def records() -> list[Parity]:
    """All records of this machine, by path; one that cannot be read is left out."""
    found = []
    for file in sorted(_folder().glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            data |= {"layers": [Layer(**x) for x in data["layers"]], "peers": [Peer(**x) for x in data["peers"]]}
            found.append(Parity(**data))
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return sorted(found, key=lambda record: record.path)


def keep(record: Parity) -> None:
    """Write a record, in place of an older one of the same checkpoint."""
    folder = _folder()
    name = hashlib.sha256(record.path.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: {error.strerror or error}; set CUTAWAY_CACHE to a folder that can be written"
        ) from None
    with replacing(folder / f"{name}.json") as file:
        file.write(json.dumps(asdict(record), indent=1, default=str).encode())


def _folder() -> Path:
    return cache_dir() / "verified"
