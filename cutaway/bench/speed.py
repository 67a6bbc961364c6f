"""How fast a model reads and writes, with weights that mean nothing: only the work counts."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from cutaway import spec
from cutaway.generation.loop import generate
from cutaway.models import Transformer
from cutaway.models.example import example

NEW = 16


@dataclass(frozen=True)
class Speed:
    """Tokens a second of reading, and of writing after `tokens` of context; None for a model that writes no text."""

    reading: float
    writing: float | None
    tokens: int


def _seconds(model: Transformer, read: Tensor) -> float:
    """How long a second reading takes."""
    with torch.inference_mode():
        model(read)
        start = perf_counter()
        model(read)
    return perf_counter() - start


def measure_speed(model: Transformer, tokens: int) -> Speed:
    """One row of `tokens` ids (or one image) read by a model, and NEW tokens written after all but NEW of them."""
    record = model.spec
    ids = example(record, tokens)
    if not isinstance(record.head, spec.LanguageHead):
        return Speed(tokens / _seconds(model, ids), None, tokens)
    n_prompt = max(tokens - NEW, 1)
    options = spec.Generation(max_tokens=min(NEW, tokens), start_id=0)
    generate(model, ids[:, :8], options)
    timing = generate(model, ids[:, :n_prompt], options).timing
    return Speed(timing.prompt_tokens_per_second, timing.tokens_per_second, tokens)
