"""Text that grows: prefill, then one token a step, until each row has a reason to end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation.cache import Cache, Kind
from cutaway.generation.sampling import choose
from cutaway.models import EncoderDecoder, Transformer
from cutaway.parts.step import Given, Memory


@dataclass
class Row:
    """One sequence: its prompt, its new ids, and why it ended ('' while it goes on)."""

    prompt: list[int]
    new: list[int] = field(default_factory=list)
    reason: str = ""

    @property
    def ids(self) -> list[int]:
        return self.prompt + self.new


@dataclass
class Result:
    """The rows, seconds of prefill and of decoding, and the cache as it was left."""

    rows: list[Row]
    prefill_s: float = 0.0
    decode_s: float = 0.0
    cache: Cache | None = None

    @property
    def tokens_per_s(self) -> float:
        """Tokens decoded a second after the first, all rows together."""
        n = sum(max(len(row.new) - 1, 0) for row in self.rows)
        return n / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True)
class Plan:
    """How to run: cache kind and capacity, tokens a chunk of the prefill (0: all at once), seed, encoder's ids."""

    cache: Kind = "growing"
    capacity: int = 0
    chunk: int = 0
    seed: int = 0
    source: Sequence[Sequence[int]] = ()


def generate(
    model: Transformer, prompts: Sequence[Sequence[int]], options: spec.Generation | None = None, plan: Plan | None = None
) -> Result:
    """Continue every prompt until it ends. Raises InputError for an empty prompt or one longer than the context."""
    result = Result([])
    for result in stream(model, prompts, options, plan):
        pass
    return result


@torch.no_grad()
def stream(
    model: Transformer, prompts: Sequence[Sequence[int]], options: spec.Generation | None = None, plan: Plan | None = None
) -> Iterator[Result]:
    """As `generate`, one step at a time: the same Result, grown, after each."""
    options, plan = options or model.spec.generation, plan or Plan()
    memory, prompts = _encoded(model, prompts, options, plan)
    rows = [Row([int(i) for i in prompt]) for prompt in prompts]
    limit = _limit(model)
    _check(rows, limit)
    side = model.spec.decoder if isinstance(model, EncoderDecoder) else model.spec
    cacheable, crossing = _cacheable(side.blocks), _crossings(side.blocks)
    result = Result(rows, cache=Cache(side.blocks, plan.cache, plan.capacity) if cacheable else None)
    generators = [torch.Generator().manual_seed(plan.seed) for _ in rows]
    start = time.perf_counter()
    logits = _read(model, rows, result.cache, memory, plan.chunk)
    result.prefill_s = time.perf_counter() - start
    while True:
        chosen = _next(logits, rows, options, generators)
        for row, token in zip(rows, chosen, strict=True):
            if not row.reason:
                row.new.append(token)
                row.reason = _reason(row, token, options, limit)
        yield result
        if all(row.reason for row in rows):
            return
        begun = time.perf_counter()
        if result.cache is None or any(len(row.ids) in crossing_ends(crossing) for row in rows):
            if result.cache is not None:
                result.cache = Cache(side.blocks, plan.cache, plan.capacity)
            logits = _read(model, rows, result.cache, memory, 0)
        else:
            ids = torch.tensor([[token] for token in chosen])
            logits = model(ids, Given(memory=memory), result.cache, last=True)[:, -1]
        result.decode_s += time.perf_counter() - begun


def crossing_ends(lengths: frozenset[int]) -> frozenset[int]:
    """Row lengths at which a key's rotation changes for the whole row (LongRoPE), so that its cache is made anew."""
    return frozenset(length + 1 for length in lengths)


def _encoded(
    model: Transformer, prompts: Sequence[Sequence[int]], options: spec.Generation, plan: Plan
) -> tuple[Memory | None, Sequence[Sequence[int]]]:
    if not isinstance(model, EncoderDecoder):
        return None, prompts
    source = plan.source or prompts
    if options.start_id == "none" and not plan.source:
        raise InputError("an encoder-decoder needs a start id for its decoder; set generation.start_id")
    ids, mask = _padded([list(row) for row in source])
    memory = model.encode(ids, Given(mask=mask))
    return memory, prompts if plan.source else [[options.start_id] for _ in source]


def _read(model: Transformer, rows: list[Row], cache: Cache | None, memory: Memory | None, chunk: int) -> Tensor:
    ids, mask = _padded([row.ids for row in rows])
    step = chunk or ids.shape[1]
    logits = ids
    for at in range(0, ids.shape[1], step):
        part = None if mask is None else mask[:, at : at + step]
        logits = model(ids[:, at : at + step], Given(mask=part, memory=memory), cache, last=True)
    return logits[:, -1]


def _padded(rows: list[list[int]]) -> tuple[Tensor, Tensor | None]:
    """Rows padded on the left to one width, and the mask where that took any padding."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    if all(len(row) == width for row in rows):
        return ids, None
    return ids, torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])


def _next(
    logits: Tensor, rows: list[Row], options: spec.Generation, generators: list[torch.Generator]
) -> list[int]:
    turn = max(len(row.new) for row in rows)
    if turn < len(options.forced_ids):
        return [options.forced_ids[turn]] * len(rows)
    limit = options.max_tokens
    if options.end_forced_id != "none" and limit != "context" and turn == limit - 1:
        return [options.end_forced_id] * len(rows)
    return choose(logits, [row.ids for row in rows], options, generators).tolist()


def _reason(row: Row, token: int, options: spec.Generation, limit: int | None) -> str:
    if token in options.stop_ids:
        return f"the end token {token}"
    if options.max_tokens != "context" and len(row.new) >= options.max_tokens:
        return f"the limit of {options.max_tokens} new tokens"
    if limit is not None and len(row.ids) >= limit:
        return f"the model's context of {limit} tokens is full"
    return ""


def _limit(model: Transformer) -> int | None:
    record = model.spec.decoder if isinstance(model, EncoderDecoder) else model.spec
    return None if record.context_length == "unlimited" else record.context_length


def _check(rows: list[Row], limit: int | None) -> None:
    if not rows or any(not row.prompt for row in rows):
        raise InputError("prompt: no tokens; give at least one character of text")
    longest = max(len(row.prompt) for row in rows)
    if limit is not None and longest >= limit:
        raise InputError(
            f"prompt: {longest} tokens, but the model's context is {limit} and one must be left; shorten the text"
        )


def _cacheable(blocks: tuple[spec.Block, ...]) -> bool:
    """Whether a key never depends on later tokens: masks that look ahead need the whole sequence each step."""
    ahead = (spec.FullMask, spec.TwoSidedMask, spec.PrefixMask)
    parts = [branch.part for block in blocks for branch in block.branches]
    return not any(isinstance(p, (spec.MultiHead, spec.Latent)) and isinstance(p.mask, ahead) for p in parts)


def _crossings(blocks: tuple[spec.Block, ...]) -> frozenset[int]:
    parts = [branch.part for block in blocks for branch in block.branches]
    ropes = [p.positions for p in parts if isinstance(p, (spec.MultiHead, spec.Latent)) and isinstance(p.positions, spec.RoPE)]
    return frozenset(r.scaling.original_length for r in ropes if isinstance(r.scaling, spec.LongRopeScaling))
