"""The parity record of a checkpoint: what of it was read, and how close its numbers come to those of others.

The model runs a short text layer by layer in float32 and, beside it, by the float64 reference; where transformers or
llama.cpp is installed it runs the same ids there. A record lies beside the cache, with marks of the files it speaks of.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutaway import __version__, spec
from cutaway.checkpoints.by_layer import Float64, by_layer
from cutaway.checkpoints.cache import cache_dir
from cutaway.checkpoints.mapped import replacing
from cutaway.checkpoints.opened import Opened, open_checkpoint
from cutaway.checkpoints.peers import Peer, ask_peers
from cutaway.errors import CheckpointError
from cutaway.models import EncoderDecoder
from cutaway.parts.step import Given
from cutaway.reference import models as reference
from cutaway.tap import listening

__all__ = ["Layer", "Parity", "records", "verify"]

TEXT = "The river rises in the mountains, runs north for 300 miles and meets the sea near two small towns."
N_IDS = 24
TOLERANCE = 1e-4
"""How far float32 may be from float64, as a share of the largest number of the layer."""


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


def verify(path: str | Path, with_peers: bool = True) -> Parity:
    """Compare a checkpoint with the reference and with the peers that are installed, and keep the record.

    Raises CheckpointError where the checkpoint cannot be read.
    """
    opened = open_checkpoint(path)
    found, config = opened.match, opened.config
    record = Parity(
        path=str(opened.path.resolve()),
        family=opened.label or opened.format,
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        files=marks(opened.path),
        n_tensors=len(found.used),
        copies=[own for own, _ in found.copies],
        ignored_tensors=found.ignored,
        ids=_ids(opened),
    )
    if config is not None:
        record.read = {key: value for key, value in config.used.items() if key not in config.ignored}
        record.assumed, record.ignored_keys = config.defaulted, config.ignored
    logits = _measure(opened, record)
    if with_peers:
        record.peers = ask_peers(opened, record.ids, logits)
    _keep(record)
    return record


def _ids(opened: Opened) -> list[int]:
    """Ids to run: a text where the checkpoint has a tokenizer that can be used, else numbers all over the vocabulary."""
    stacks = list(spec.stacks(opened.record).values())
    vocab_size = min(stack.vocab_size for stack in stacks)
    room = min([N_IDS, *(stack.context_length for stack in stacks if stack.context_length != "unlimited")])
    try:
        tokenizer = opened.tokenizer()
    except CheckpointError:
        tokenizer = None
    ids = tokenizer.encode(TEXT) if tokenizer is not None else []
    if not ids or max(ids) >= vocab_size:
        ids = [int(i) for i in np.random.default_rng(0).integers(0, vocab_size, N_IDS)]
    return ids[:room]


def _measure(opened: Opened, record: Parity) -> torch.Tensor:
    """Fill in the layers; the logits of float32."""
    ids = torch.tensor([record.ids])
    model, states = by_layer(opened), {}
    with (
        torch.no_grad(),
        listening(model, lambda name, x: states.update({name: x}), "*embedded", "*.resid_post", "*final"),
    ):
        given = Given(memory=model.encode(ids)) if isinstance(model, EncoderDecoder) else Given()
        logits = model(ids, given)
    of_reference = reference.Given(source=ids.numpy()) if isinstance(model, EncoderDecoder) else reference.NOTHING
    exact = reference.forward(opened.record, Float64(opened), ids.numpy(), of_reference)
    pairs = [(name, states[name].numpy(), state) for name, state in exact.states.items()]
    for name, ours, theirs in [*pairs, ("head", logits.numpy(), exact.output)]:
        worst, largest = float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())
        record.layers.append(Layer(name.removesuffix(".resid_post"), worst, largest))
    return logits


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


def _keep(record: Parity) -> None:
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
