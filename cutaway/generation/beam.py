"""Beam search: the continuation of highest score among the few best kept at each length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.generation.reader import Reader
from cutaway.generation.sampling import Sampler, likeliest, wide
from cutaway.generation.stopping import Row


@dataclass(frozen=True)
class Beam:
    """A continuation: its ids, what each added to its score, and the score: their sum, divided once it is complete."""

    ids: list[int]
    added: list[float]
    score: float
    source: int = 0
    """Which beam of the step before it continues."""


@dataclass
class Group:
    """The beams of one prompt: those that go on and the best that are complete, both best first."""

    row: Row
    ends: Callable[[list[int]], bool]
    running: list[Beam] = field(default_factory=lambda: [Beam([], [], 0.0)])
    complete: list[Beam] = field(default_factory=list)
    done: bool = False

    def grow(self, candidates: list[Beam], options: spec.Generation) -> None:
        """Sort the next step's candidates, best first, into complete ones and those that go on."""
        n, length = options.n_beams, len(candidates[0].ids)
        ended = [self.ends(beam.ids) for beam in candidates]
        for beam, end in list(zip(candidates, ended, strict=True))[:n]:
            if end:
                self.complete.append(replace(beam, score=beam.score / length**options.length_penalty))
        self.complete = sorted(self.complete, key=lambda beam: -beam.score)[:n]
        self.running = [beam for beam, end in zip(candidates, ended, strict=True) if not end][:n]
        if len(self.complete) == n and self.running:
            possible = self.running[0].score / length**options.length_penalty
            self.done = options.early_stopping or possible <= self.complete[-1].score
        self.done = self.done or not self.running
        idle = replace(candidates[0], score=-math.inf)  # keeps the shape where fewer than n go on; never chosen
        self.running += [idle] * (n - len(self.running))


class BeamSearch:
    """Grows n_beams continuations of each prompt by a token a step and keeps the best complete ones.

    A step looks at the k best of all continuations by one token, k = n_beams * max(2, 1 + number of stop ids). Those of
    the first n_beams that end are complete, with score / length^length_penalty, and the n_beams best complete ones are
    kept; the n_beams best that do not end go on. A prompt is done when n_beams are complete and either
    `early_stopping` is set or the best that goes on, were it to end now, is no better than the worst of them; or when
    none goes on. Of equal scores the earlier beam comes first, then the lower id. Penalties act on log-probabilities,
    and a forced token adds nothing to a score. (Freitag and Al-Onaizan 2017, arXiv:1702.01806; the counts and the end
    are those of the transformers library.)
    """

    def __init__(self, reader: Reader, options: spec.Generation, groups: list[Group]) -> None:
        self.reader, self.options, self.going = reader, options, groups
        self.n_candidates = options.n_beams * max(2, 1 + len(options.stop_ids))
        self.sampler: Sampler | None = None

    def step(self) -> bool:
        """One token further; whether there is more to do."""
        added = self._added()
        n_running, vocab_size = len(self.going[0].running), added.shape[1]
        before = torch.tensor([beam.score for group in self.going for beam in group.running], dtype=added.dtype)
        total = (added + before.to(added.device)[:, None]).reshape(len(self.going), -1)
        scores, places = likeliest(total, min(self.n_candidates, n_running * vocab_size))
        added = added.reshape(total.shape).gather(1, places)
        for group, *row in zip(self.going, scores.tolist(), places.tolist(), added.tolist(), strict=True):
            if math.isnan(row[0][0]):
                raise InputError(f"prompt {group.row.index}: the model's logits are NaN; check its weights")
            group.grow(_candidates(group.running, row, vocab_size), self.options)
        self._go_on(n_running)
        return bool(self.going)

    def _added(self) -> Float[Tensor, "R V"]:
        """What each token would add to the score of each beam."""
        if self.sampler is None:
            logits = self.reader.start()
            room = [group.row.limit.n_tokens for group in self.going]
            self.sampler = Sampler(self.options, self.reader.rows, [], logits, room)
        else:
            ids = [beam.ids[-1] for group in self.going for beam in group.running]
            tokens = torch.tensor(ids, device=self.reader.device)
            self.sampler.note(tokens)
            logits = self.reader.read(tokens, ids)
        return self.sampler.adjust(wide(logits).log_softmax(1))

    def _go_on(self, n_running: int) -> None:
        """Leave the prompts that are done, and give each beam what its source has read."""
        going = [(place, group) for place, group in enumerate(self.going) if not group.done]
        sources = [place * n_running + beam.source for place, group in going for beam in group.running]
        whole = len(going) == len(self.going) and n_running == self.options.n_beams
        self.going = [group for _, group in going]
        if sources:
            assert self.sampler is not None
            self.reader.keep(sources, same_memory=whole)
            self.sampler.keep(sources)


def _candidates(running: list[Beam], row: list[list[float]], vocab_size: int) -> list[Beam]:
    """The beams that a row of (score, place, added) stands for; a place is beam * vocab_size + id."""
    found = []
    for score, place, added in zip(*row, strict=True):
        source, token = divmod(int(place), vocab_size)
        if score > -math.inf:
            found.append(Beam([*running[source].ids, token], [*running[source].added, added], score, source))
    return found
