"""From logits to a token. The order is fixed: forbidden ids, penalties, forced ids, temperature, top-k, top-p,
min-p, draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cutaway import spec

SHORT_LISTS = (256, 2048)
"""How many of the likeliest tokens top-p looks at before it sorts a whole vocabulary."""
SPARE = 64
"""How many more than asked are fetched, so that equal logits at the border are all seen."""


class Sampler:
    """Chooses the next token of each row; a row's own generator draws, so its text is the same alone and in a batch.

    `seeds`: one a row, None for a fresh one. `rows`: the ids that count as seen before the first choice. `room`: how
    many new tokens each row has room for, where the options force the last.
    """

    def __init__(
        self, options: spec.Generation, rows: Sequence[Sequence[int]], seeds: Sequence[int | None], like: Tensor,
        room: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.options = options
        self.generators = [_generator(seed) for seed in seeds] if options.temperature > 0 else []
        self.suppressed = torch.tensor(options.suppressed_ids, dtype=torch.long, device=like.device)
        penalised = options.repetition_penalty != 1.0 or options.presence_penalty != 0.0
        self.seen = seen_ids(rows, like.device) if penalised else None
        self.rows = [list(row) for row in rows] if options.no_repeat_ngram_size else []
        self.room = list(room) if options.end_forced_id != "none" else []
        self.n_new = 0

    def choose(self, logits: Float[Tensor, "B V"]) -> Int[Tensor, " B"]:
        """A token a row; -1 where the logits are NaN."""
        logits = self.adjust(logits)
        if self.options.temperature == 0:
            return argmax(logits)
        probabilities, ids = distribution(logits, self.options)
        uniform = torch.cat([torch.rand(1, generator=each, dtype=torch.float64) for each in self.generators])
        token = draw(probabilities, uniform.to(logits.device))
        token = token if ids is None else ids.gather(1, token[:, None])[:, 0]
        return torch.where(probabilities[:, 0].isnan(), -1, token)

    def adjust(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """The logits after what may not come, penalties and what must come: 0, all others minus infinity."""
        if self.suppressed.numel():
            logits = logits.index_fill(1, self.suppressed, -torch.inf)
        if self.n_new < self.options.min_tokens and self.options.stop_ids:
            stops = torch.tensor(self.options.stop_ids, device=logits.device)
            logits = logits.index_fill(1, stops, -torch.inf)
        if self.rows:
            logits = logits.clone()
            for row, ids in zip(logits, self.rows, strict=True):
                row[list(repeating(ids, self.options.no_repeat_ngram_size))] = -torch.inf
        if self.seen is not None:
            logits = penalise(logits, self.seen, self.options.repetition_penalty, self.options.presence_penalty)
        if self.n_new < len(self.options.forced_ids):
            return _only(logits, self.options.forced_ids[self.n_new])
        if any(last := [self.n_new + 1 >= room for room in self.room]):
            end = _only(logits, int(self.options.end_forced_id))
            logits = torch.where(torch.tensor(last, device=logits.device)[:, None], end, logits)
        return logits

    def note(self, tokens: Int[Tensor, " B"]) -> None:
        """These tokens have been seen from now on."""
        self.n_new += 1
        for row, token in zip(self.rows, tokens.tolist() if self.rows else [], strict=True):
            row.append(token)
        if self.seen is not None:
            self.seen = torch.cat((self.seen, tokens[:, None]), 1)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows alone; one may come twice."""
        self.generators = [self.generators[row] for row in rows] if self.generators else []
        self.seen = self.seen if self.seen is None else self.seen[list(rows)]
        self.rows = [list(self.rows[row]) for row in rows] if self.rows else []
        self.room = [self.room[row] for row in rows] if self.room else []


def repeating(ids: Sequence[int], n: int) -> set[int]:
    """The ids that would complete a run of n ids which is there already (Paulus et al. 2017, arXiv:1705.04304)."""
    before = list(ids[len(ids) - n + 1 :]) if n > 1 else []
    starts = range(len(ids) - n + 1) if len(ids) >= n else range(0)
    return {ids[start + n - 1] for start in starts if list(ids[start : start + n - 1]) == before}


def seen_ids(rows: Sequence[Sequence[int]], device: torch.device) -> Int[Tensor, "B S"]:
    """The ids of each row; short rows are filled up with an id of their own."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[row[0]] * (longest - len(row))] for row in rows], device=device)


def wide(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """In float32 at least."""
    return logits if logits.dtype == torch.float64 else logits.float()


def argmax(logits: Float[Tensor, "B V"]) -> Int[Tensor, " B"]:
    """The likeliest token of each row, of equal ones the lowest id; -1 where a logit is NaN."""
    on_cpu = logits.device.type == "cpu"  # where NumPy's search is 15 times as fast as torch's
    token = torch.from_numpy(wide(logits).numpy().argmax(1)) if on_cpu else logits.argmax(1)
    return torch.where(logits.gather(1, token[:, None])[:, 0].isnan(), -1, token)


def penalise(
    logits: Float[Tensor, "B V"], seen: Int[Tensor, "B S"], repetition: float = 1.0, presence: float = 0.0
) -> Float[Tensor, "B V"]:
    """Each distinct id seen so far, prompt included, made less likely, once.

    A positive logit is divided by `repetition`, a negative one multiplied (Keskar et al. 2019, arXiv:1909.05858); then
    `presence` is subtracted.
    """
    before = logits.gather(1, seen)
    after = torch.where(before > 0, before / repetition, before * repetition) - presence
    return logits.scatter(1, seen, after)  # an id that stands there twice is written twice, with one and the same value


def distribution(
    logits: Float[Tensor, "B V"], options: spec.Generation
) -> tuple[Float[Tensor, "B n"], Int[Tensor, "B n"] | None]:
    """Probabilities that a token is drawn from, and whose they are: ids in rising order, None for all.

    temperature T > 0: softmax(logits / T). top-k: the k likeliest, of equal ones the lower ids. top-p: the smallest
    set of likeliest tokens whose mass reaches p (Holtzman et al. 2019, arXiv:1904.09751): a token stays if those before
    it hold less than p, so the one that crosses p stays, and the first always. min-p: those at least p times as likely
    as the likeliest (Nguyen et al. 2024, arXiv:2407.01082).
    """
    logits, ids = wide(logits), None
    if options.top_k:
        ids = likeliest(logits, min(options.top_k, logits.shape[1]))[1].sort(1).values
        logits = logits.gather(1, ids)
    coldest = torch.finfo(logits.dtype).tiny  # a lower one would divide by zero, and keeps no more than this
    scaled = (logits - logits.amax(1, keepdim=True)) / max(options.temperature, coldest)  # so that nothing overflows
    if options.top_p < 1:
        scaled, places = _nucleus(scaled, options.top_p)
        ids = places if ids is None else ids.gather(1, places)
    probabilities = scaled.softmax(1)
    if options.min_p:
        low = probabilities < options.min_p * probabilities.amax(1, keepdim=True)
        probabilities = probabilities.masked_fill(low, 0.0)
        probabilities = probabilities / probabilities.sum(1, keepdim=True)
    return probabilities, ids


def draw(probabilities: Float[Tensor, "B n"], uniform: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The place in whose stretch of the cumulative sum a number of [0, 1) falls."""
    cumulative = probabilities.cumsum(1, dtype=torch.float64)
    total = cumulative[:, -1:].contiguous()
    place = torch.searchsorted(cumulative, uniform[:, None] * total, right=True)
    last = torch.searchsorted(cumulative, total)  # the last that has a probability, should rounding go past it
    return torch.minimum(place, last)[:, 0].clamp(max=probabilities.shape[1] - 1)  # NaN would be past the end


def likeliest(values: Float[Tensor, "B V"], n: int) -> tuple[Float[Tensor, "B n"], Int[Tensor, "B n"]]:
    """The n largest of each row, largest first, and where they stand; of equal ones the lower place first."""
    if n + SPARE < values.shape[1]:
        top = values.topk(n + SPARE, sorted=True)
        if bool((top.values[:, n - 1] > top.values[:, -1]).all()):  # else equal ones may have been left out
            place = top.indices.sort(1).values
            ordered = values.gather(1, place).sort(dim=1, descending=True, stable=True)
            return ordered.values[:, :n], place.gather(1, ordered.indices[:, :n])
    ordered = values.sort(dim=1, descending=True, stable=True)
    return ordered.values[:, :n], ordered.indices[:, :n]


def _only(logits: Float[Tensor, "B V"], token: int) -> Float[Tensor, "B V"]:
    """0 for one token, minus infinity for all others."""
    forced = torch.full_like(logits, -torch.inf)
    forced[:, token] = 0.0
    return forced


def _nucleus(scaled: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """The likeliest of each row that reach a mass, and their places, rising; -inf where a row needs fewer."""
    total = scaled.logsumexp(1, keepdim=True)
    scaled, places = _until(scaled, total, mass)
    share = (scaled - total).exp().double()
    outside = share.cumsum(1) - share >= mass
    outside[:, 0] = False
    places, order = places.sort(1)
    return scaled.masked_fill(outside, -torch.inf).gather(1, order), places


def _until(scaled: Tensor, total: Tensor, mass: float) -> tuple[Tensor, Tensor]:
    """Enough of the likeliest for those of every row to reach a mass."""
    for n in SHORT_LISTS:
        if n < scaled.shape[1]:
            values, ids = likeliest(scaled, n)
            if bool(((values - total).exp().sum(1) >= mass).all()):
                return values, ids
    return likeliest(scaled, scaled.shape[1])


def _generator(seed: int | None) -> torch.Generator:
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
