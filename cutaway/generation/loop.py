"""Continues texts token by token: the prompt is read, a token is chosen, the model reads it, and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation.beam import BeamSearch, Group
from cutaway.generation.prompts import Prompts, as_rows, as_seeds, check
from cutaway.generation.reader import Reader, encoded
from cutaway.generation.result import Result, Run, Timing, Token
from cutaway.generation.sampling import Sampler, wide
from cutaway.generation.stopping import Row, room
from cutaway.models import EncoderDecoder, Transformer
from cutaway.tap import check_model, original
from cutaway.tokenizers import streaming

BEFORE = 8
"""Ids of the prompt that a text is read after: enough for a space or a character that began in them."""


def generate(
    model: Transformer, prompts: Prompts, options: spec.Generation | None = None, run: Run = Run(),
    mask: Tensor | None = None,
) -> Result:  # fmt: skip
    """What a model writes after each prompt, or for each source text where it has an encoder.

    Prompts are ids: one list, several, or [B, T] whose padding, on either side, `mask` tells (1: real). The options
    are those of the model's spec unless given. Each prompt is continued as if it were alone.

    Raises InputError for a prompt that is empty, too long for the context or not of the vocabulary, and for options
    that cannot work together.

    >>> import cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> result = cutaway.generate(model, [[1, 2, 3], [4]], cutaway.spec.Generation(max_tokens=4))
    >>> [len(ids) for ids in result.ids]
    [4, 4]
    """
    stream = Stream(model, prompts, options, run, mask)
    texts: list[list[str]] = [[] for _ in stream.rows]
    logprobs: list[list[float]] = [[] for _ in stream.rows]
    for token in stream:
        texts[token.row].append(token.text)
        if token.logprob is not None:
            logprobs[token.row].append(token.logprob)
    return Result(
        [row.ids for row in stream.rows],
        [row.reason for row in stream.rows if row.reason is not None],
        stream.timing,
        ["".join(pieces) for pieces in texts] if run.tokenizer is not None else None,
        logprobs if run.logprobs else None,
    )


class Stream:
    """The tokens of `generate` one by one as they come, of all rows in turn; `timing` grows with them.

    Beams give all their tokens at the end, when it is known which of them wins. Errors are raised when it is made; to
    run through it again starts anew.

    >>> import cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> stream = cutaway.Stream(model, [1, 2, 3], cutaway.spec.Generation(max_tokens=3))
    >>> ids = [token.id for token in stream]
    >>> ids == stream.rows[0].ids, str(stream.rows[0].reason)
    (True, 'the limit of new tokens, 3, is reached')
    """

    def __init__(
        self, model: Transformer, prompts: Prompts, options: spec.Generation | None = None, run: Run = Run(),
        mask: Tensor | None = None,
    ) -> None:  # fmt: skip
        check_model(model)
        if original(model) is not model:  # what torch has compiled stands in the model's place
            model, run = original(model), run if run.forward is not None else replace(run, forward=model)
        options = model.spec.generation if options is None else options
        check(model.spec, options, run)
        self.model, self.options, self.run = model, options, run
        self.sources: list[list[int]] | None = None
        if isinstance(model, EncoderDecoder):
            self.sources = as_rows(prompts, model.spec.encoder, mask)
            self.prompts = [[int(options.start_id)] for _ in self.sources]
        else:
            self.prompts = as_rows(prompts, model.spec, mask)
        self.seeds = as_seeds(run.seeds, len(self.prompts))
        self._begin()

    @torch.inference_mode()
    def __iter__(self) -> Iterator[Token]:
        self._begin()
        training = self.model.training
        if training:  # dropout would change the text
            self.model.eval()
        try:
            for rows in self._groups():
                yield from self._beams(rows) if self.options.n_beams > 1 else self._sampled(rows)
        finally:
            if training:
                self.model.train()

    def _begin(self) -> None:
        self.timing = Timing(n_prompt=sum(len(row) for row in self.sources or self.prompts))
        self.rows = [self._row(index) for index in range(len(self.prompts))]

    def _sampled(self, rows: list[Row]) -> Iterator[Token]:
        began = perf_counter()
        reader = self._reader(rows)
        logits = reader.start()
        seeds, room = [self.seeds[row.index] for row in rows], [row.limit.n_tokens for row in rows]
        sampler = Sampler(self.options, reader.rows, seeds, logits, room)
        while True:
            tokens = sampler.choose(logits)
            logprobs = _logprobs(logits, tokens) if self.run.logprobs else [None] * len(rows)
            ids = tokens.tolist()  # the one moment of a step that waits for the device
            if min(ids) < 0:
                raise InputError(f"prompt {rows[ids.index(-1)].index}: the model's logits are NaN; check its weights")
            texts = [row.push(token) for row, token in zip(rows, ids, strict=True)]
            self.timing.count(perf_counter() - began, len(rows), first=len(rows[0].ids) == 1)
            for row, token, text, logprob in zip(rows, ids, texts, logprobs, strict=True):
                yield Token(row.index, token, text, logprob, row.reason)
            began = perf_counter()
            going = [place for place, row in enumerate(rows) if row.reason is None]
            if not going:
                return
            sampler.note(tokens)
            if len(going) < len(rows):
                rows, ids, tokens = [rows[i] for i in going], [ids[i] for i in going], tokens[going]
                reader.keep(going)
                sampler.keep(going)
            logits = reader.read(tokens, ids)

    def _beams(self, rows: list[Row]) -> Iterator[Token]:
        began = perf_counter()
        groups = [Group(row, self._ends(row)) for row in rows]
        search = BeamSearch(self._reader(rows), self.options, groups)
        going, first = True, True
        while going:
            n_rows, going = len(search.going), search.step()
            self.timing.count(perf_counter() - began, n_rows, first)
            began, first = perf_counter(), False
        for group in groups:
            best, row = group.complete[0], group.row
            for token, added in zip(best.ids, best.added, strict=True):
                text = row.push(token)
                yield Token(row.index, token, text, added if self.run.logprobs else None, row.reason)

    def _ends(self, row: Row) -> Callable[[list[int]], bool]:
        """Whether ids would end a row; where stop strings matter they are pushed through a fresh copy of it."""

        def by_ids(ids: list[int]) -> bool:
            return ids[-1] in row.stop_ids or len(ids) >= row.limit.n_tokens

        def by_text(ids: list[int]) -> bool:
            fresh = self._row(row.index)
            for token in ids:
                fresh.push(token)
            return fresh.reason is not None

        return by_text if self.options.stop_strings else by_ids

    def _row(self, index: int) -> Row:
        limit = room(len(self.prompts[index]), self.options, spec.last_stack(self.model.spec).context_length, index)
        before = [] if self.sources is not None else self.prompts[index][-BEFORE:]
        text = None if self.run.tokenizer is None else streaming.Stream(self.run.tokenizer, before)
        return Row(index, limit, self.options, text)

    def _groups(self) -> list[list[Row]]:
        """Rows that may share a batch: all, unless padding would move positions, which then must be of one length."""
        places = spec.last_stack(self.model.spec).embedding.positions
        if isinstance(places, spec.NoPositions) or not isinstance(places.counted, spec.ByColumn):
            return [self.rows] if self.rows else []
        by_length: dict[int, list[Row]] = {}
        for row in self.rows:
            by_length.setdefault(len(self.prompts[row.index]), []).append(row)
        return list(by_length.values())

    def _reader(self, rows: list[Row]) -> Reader:
        prompts = [self.prompts[row.index] for row in rows]
        capacity = max(len(prompt) + row.limit.n_tokens for prompt, row in zip(prompts, rows, strict=True))
        memory = None
        if isinstance(self.model, EncoderDecoder):
            assert self.sources is not None
            memory = encoded(self.model, [self.sources[row.index] for row in rows], self.run)
        return Reader(self.model, prompts, self.run, capacity, memory)


def _logprobs(logits: Float[Tensor, "B V"], tokens: Int[Tensor, " B"]) -> list[float]:
    """The log-probability that the model itself gives the chosen tokens."""
    logits = wide(logits)
    chosen = logits.gather(1, tokens.clamp(min=0)[:, None])[:, 0]
    return (chosen - logits.logsumexp(1)).tolist()
