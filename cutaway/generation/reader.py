"""Feeds rows of ids to a model and keeps what it has read: cached, or read anew where a cache cannot serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation.cache import Cache
from cutaway.generation.result import Run
from cutaway.generation.runner import Runner
from cutaway.models import EncoderDecoder, Transformer
from cutaway.parts.inputs import padded
from cutaway.parts.step import Given, Memory


class Reader:
    """Logits of the next token of each row, as tokens are added to the rows.

    Rows of unequal length are padded on the left, which moves no position. A layer whose tokens see later ones (a full
    mask) cannot be cached: then all is read at each step. With LongRoPE frequencies the cache is made anew when a row
    grows past the original length; with dynamic NTK a key keeps the rotation that it was written with. A prompt is
    read `run.chunk` tokens at a time, but that of a prefix model whole, since all its tokens see each other.
    """

    def __init__(
        self, model: Transformer, rows: Sequence[Sequence[int]], run: Run = Run(), capacity: int = 0,
        memory: Memory | None = None,
    ) -> None:  # fmt: skip
        self.model, self.rows, self.memory = model, [list(row) for row in rows], memory
        self.forward = model if run.forward is None else run.forward
        self.stack = model.decoder if isinstance(model, EncoderDecoder) else model
        self.blocks = spec.last_stack(model.spec).blocks
        self.device = self.stack.embedding.table.weight.device
        attentions = spec.attentions(self.blocks)
        masks = {each.mask.kind for each in attentions}
        self.kind = None if masks & {"full", "two_sided"} else run.cache
        self.capacity, self.chunk = capacity, run.chunk
        self.cache: Cache | None = None
        self.prefix = [len(row) for row in self.rows] if "prefix" in masks else None
        scalings = [each.positions.scaling for each in attentions if isinstance(each.positions, spec.RoPE)]
        self.by_length = any(isinstance(each, (spec.DynamicScaling, spec.LongRopeScaling)) for each in scalings)
        self.crossings = {each.original_length for each in scalings if isinstance(each, spec.LongRopeScaling)}
        self.given = Given(memory=memory)

    @cached_property
    def runner(self) -> Runner | None:
        """Made for the first token that is decoded: a prompt alone does without."""
        return Runner.of(self.model) if self.kind is not None and self.forward is self.model else None

    def start(self) -> Float[Tensor, "B V"]:
        """Read every row from its beginning."""
        ids, mask = padded(self.rows, self.stack.embedding.pad_id, self.device)
        self.cache = None if self.kind is None else Cache(self.blocks, self.kind, self.capacity)
        size = ids.shape[1] if self.cache is None or self.prefix is not None else self.chunk
        lengths = torch.tensor([len(row) for row in self.rows], device=self.device) if self.by_length else None
        prefix = None if self.prefix is None else torch.tensor(self.prefix, device=self.device)
        logits = None
        for first in range(0, ids.shape[1], size):
            part = slice(first, first + size)
            given = replace(self.given, mask=None if mask is None else mask[:, part], prefix=prefix, lengths=lengths)
            logits = self.forward(ids[:, part], given, self.cache, last=True)
        if not isinstance(logits, Tensor):
            made = type(logits).__name__
            raise InputError(
                f"forward: it gave a {made}; give what returns logits (a CompiledRecording as `Steps(it)`)"
            )
        return logits[:, -1]

    def read(self, tokens: Int[Tensor, " B"], ids: Sequence[int]) -> Float[Tensor, "B V"]:
        """Add a token to each row: the same ones on the device and as plain numbers, so that nothing waits for them."""
        for row, token in zip(self.rows, ids, strict=True):
            row.append(token)
        if self.cache is None or (self.crossings and any(len(row) - 1 in self.crossings for row in self.rows)):
            return self.start()
        if self.runner is not None and self.runner.fits(tokens):
            return self.runner(tokens[:, None], self.given, self.cache)[:, -1]
        return self.forward(tokens[:, None], self.given, self.cache, last=True)[:, -1]

    def keep(self, rows: Sequence[int], same_memory: bool = False) -> None:
        """Go on with these rows; one may come twice. `same_memory`: the encoder's output stays where it is."""
        if list(rows) == list(range(len(self.rows))):
            return
        index = torch.tensor(rows, dtype=torch.long, device=self.device)
        before = max(len(row) for row in self.rows)
        self.rows = [list(self.rows[row]) for row in rows]
        self.prefix = None if self.prefix is None else [self.prefix[row] for row in rows]
        if self.cache is not None:
            self.cache.reorder(index, before - max(len(row) for row in self.rows), same_memory)
        if self.memory is not None and not same_memory:
            memory = Memory(self.memory.states[index], self.memory.owners[index], self.memory.plain)
            self.memory, self.given = memory, Given(memory=memory)


def encoded(model: EncoderDecoder, sources: Sequence[Sequence[int]], run: Run = Run()) -> Memory:
    """What the encoder makes of some sources; they are padded on the right, which moves not even counted columns."""
    device = model.encoder.embedding.table.weight.device
    ids, mask = padded(sources, model.encoder.embedding.pad_id, device, side="right")
    return (model if run.forward is None else run.forward).encode(ids, Given(mask=mask))
