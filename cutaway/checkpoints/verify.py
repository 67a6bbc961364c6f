"""Compares a checkpoint with the float64 reference, layer by layer, and with the peers that are installed."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import torch

from cutaway import __version__, spec
from cutaway.checkpoints.by_layer import Float64, by_layer
from cutaway.checkpoints.opened import Opened, open_checkpoint
from cutaway.checkpoints.parity import Layer, Parity, keep, marks
from cutaway.checkpoints.peers import ask_peers
from cutaway.errors import CheckpointError
from cutaway.models import EncoderDecoder
from cutaway.models.example import example
from cutaway.parts.step import Given
from cutaway.reference import models as reference
from cutaway.tap import listening

TEXT = "The river rises in the mountains, runs north for 300 miles and meets the sea near two small towns."
N_IDS = 24


def verify(path: str | Path, with_peers: bool = True) -> Parity:
    """Compare a checkpoint with the reference and with the peers that are installed, and keep the record.

    Raises CheckpointError where the checkpoint cannot be read.
    """
    opened = open_checkpoint(path)
    found, config, read = opened.match, opened.config, _read(opened)
    record = Parity(
        path=str(opened.path.resolve()),
        family=opened.label or opened.format,
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        files=marks(opened.path),
        n_tensors=len(found.used),
        copies=[own for own, _ in found.copies],
        ignored_tensors=found.ignored,
        ids=[] if read.is_floating_point() else read[0].tolist(),
    )
    if config is not None:
        record.read = {key: value for key, value in config.used.items() if key not in config.ignored}
        record.assumed, record.ignored_keys = config.defaulted, config.ignored
    logits = _measure(opened, record, read)
    if with_peers:
        record.peers = ask_peers(opened, read, logits)
    keep(record)
    return record


def _read(opened: Opened) -> torch.Tensor:
    """The ids of a text where the checkpoint has a tokenizer that can be used, else the example for its spec."""
    stacks = list(spec.stacks(opened.record).values())
    room = min([N_IDS, *(stack.context_length for stack in stacks if stack.context_length != "unlimited")])
    try:
        tokenizer = opened.tokenizer()
    except CheckpointError:
        tokenizer = None
    ids = [] if tokenizer is None else tokenizer.encode(TEXT)[:room]
    if ids and max(ids) < min(stack.vocab_size for stack in stacks):
        return torch.tensor([ids])
    return example(opened.record, room)


def _measure(opened: Opened, record: Parity, ids: torch.Tensor) -> torch.Tensor:
    """Fill in the layers; the logits of float32."""
    two = isinstance(opened.record, spec.EncoderDecoder)
    of_source = reference.Given(source=ids.numpy()) if two else reference.NOTHING
    exact = reference.forward(opened.record, Float64(opened), ids.numpy(), of_source)
    model, states = by_layer(opened), {}
    with torch.no_grad(), listening(model, lambda name, x: states.update({name: x}), *exact.states):
        logits = model(ids, Given(memory=model.encode(ids)) if isinstance(model, EncoderDecoder) else Given())
    pairs = [(name, states[name].numpy(), state) for name, state in exact.states.items() if name in states]
    for name, ours, theirs in [*pairs, ("head", logits.numpy(), exact.output)]:
        worst, largest = float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())
        record.layers.append(Layer(name.removesuffix(".resid_post"), worst, largest))
    return logits
