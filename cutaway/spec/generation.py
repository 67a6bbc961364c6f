"""How a model is meant to be sampled: defaults that come with a checkpoint and that a caller overrides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cutaway.spec.positions import Count, Positive
from cutaway.spec.record import Record

Id = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Generation(Record):
    """Defaults of decoding. temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 keep every token.

    Beams are ranked by score / length^`length_penalty`; `early_stopping` ends with the n_beams-th complete one.
    `start_id` begins a decoder that has an encoder; `forced_ids` are the first new tokens whatever the logits say;
    `end_forced_id` is the last one where the limit is reached; `suppressed_ids` never come. No `no_repeat_ngram_size`
    ids come in a row a second time, prompt included; no stop id is among the first `min_tokens` new ones.
    """

    temperature: Annotated[float, Field(ge=0.0)] = 0.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Share = 1.0
    min_p: Share = 0.0
    repetition_penalty: Positive = 1.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: Annotated[int, Field(ge=0)] = 0
    n_beams: Count = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    max_tokens: Count | Literal["context"] = "context"
    min_tokens: Annotated[int, Field(ge=0)] = 0
    stop_ids: tuple[Id, ...] = ()
    stop_strings: tuple[str, ...] = ()
    start_id: Id | Literal["none"] = "none"
    forced_ids: tuple[Id, ...] = ()
    end_forced_id: Id | Literal["none"] = "none"
    suppressed_ids: tuple[Id, ...] = ()
    pad_id: Id | Literal["none"] = "none"
