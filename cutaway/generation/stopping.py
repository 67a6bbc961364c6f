"""When a row ends, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cutaway import spec
from cutaway.errors import InputError
from cutaway.tokenizers.streaming import StopStrings, Stream

Kind = Literal["stop_id", "stop_string", "limit", "context"]


@dataclass(frozen=True)
class Reason:
    """Why a row ended: `kind` for programs, `str(reason)` for people."""

    kind: Kind
    detail: int | str

    def __str__(self) -> str:
        match self.kind:
            case "stop_id":
                return f"the stop token {self.detail} came"
            case "stop_string":
                return f"the stop string {self.detail!r} came"
            case "limit":
                return f"the limit of new tokens, {self.detail}, is reached"
        return f"the model's context of {self.detail} tokens is full"


class Limit(NamedTuple):
    """How many new tokens a row has room for, and the reason to give when they have come."""

    n_tokens: int
    reason: Reason


class Row:
    """One request while it runs: its new ids, their text as far as it is certain, and why it ended.

    A stop id is kept as the last id and has no text. At a stop string the text ends just before it, and the ids hold
    the token that completed it. Prompt and new tokens together never exceed the context.
    """

    def __init__(self, index: int, limit: Limit, options: spec.Generation, text: Stream | None = None) -> None:
        self.index, self.limit, self.text = index, limit, text
        self.stop_ids = frozenset(options.stop_ids)
        self.stops = StopStrings(options.stop_strings) if options.stop_strings else None
        self.ids: list[int] = []
        self.reason: Reason | None = None

    def push(self, token: int) -> str:
        """Take one more token; returns the text that it makes certain and sets `reason` if it ends the row."""
        self.ids.append(token)
        stop = token in self.stop_ids
        if stop:
            self.reason = Reason("stop_id", token)
        elif len(self.ids) >= self.limit.n_tokens:
            self.reason = self.limit.reason
        if self.text is None:
            return ""
        piece = "" if stop else self._show(self.text.push(token))
        if self.reason is not None:  # what waited for more is certain now
            piece += self._show(self.text.flush()) + ("" if self.stops is None else self.stops.flush())
        return piece

    def _show(self, piece: str) -> str:
        if self.stops is None:
            return piece
        piece = self.stops.push(piece)
        if self.stops.found is not None:
            self.reason = Reason("stop_string", self.stops.found)
        return piece


def room(n_prompt: int, options: spec.Generation, context: int | str, index: int = 0) -> Limit:
    """How many tokens may follow the prompt of this index.

    Raises InputError for a prompt without room for one more, or where nothing at all sets an end.
    """
    asked = None if options.max_tokens == "context" else options.max_tokens
    if context == "unlimited":
        if asked is None:
            raise InputError("max_tokens: the model's context is unlimited, so nothing sets an end; give a number")
        return Limit(asked, Reason("limit", asked))
    left = int(context) - n_prompt
    if left < 1:
        raise InputError(
            f"prompt {index}: {n_prompt} tokens, but the model's context is {context}, a new token included; "
            f"shorten the prompt to at most {int(context) - 1} tokens"
        )
    if asked is not None and asked <= left:
        return Limit(asked, Reason("limit", asked))
    return Limit(left, Reason("context", int(context)))
