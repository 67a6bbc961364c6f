"""Text that grows by tokens: whole characters only, and nothing that may turn out to be the start of a stop string."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from cutaway.errors import InputError
from cutaway.tokenizers.tokenizer import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_WAITING = 3
"""A character has at most four bytes, so at most three can wait for their last one."""
MAX_WINDOW = 64


class Stream:
    """Ids in, text out: the pieces joined are the decoding of the whole sequence.

    A token alone has no text of its own: it may hold part of a character, and whether its leading space is shown
    depends on what stands before. So the last tokens are decoded together, and what is new is given out.
    """

    def __init__(self, tokenizer: Tokenizer, after: Iterable[int] = (), *, skip_special: bool = False) -> None:
        """`after` are ids whose text is already known, such as a prompt."""
        self._decode = partial(tokenizer.decode, skip_special=skip_special)
        self._window = list(after)
        self._n_new = 0
        self._shown = self._decode(self._window).rstrip(REPLACEMENT)

    def push(self, i: int) -> str:
        """The text that one more id completes; empty while a character waits for its other bytes."""
        self._window.append(i)
        self._n_new += 1
        text = self._decode(self._window)
        if not text.startswith(self._shown):  # a byte that fits nowhere made what was before it unreadable
            self._window, self._shown = self._window[-self._n_new :], ""
            text = self._decode(self._window)
        waiting = min(len(text) - len(text.rstrip(REPLACEMENT)), MAX_WAITING)
        full = self._n_new >= MAX_WINDOW
        piece = self._show(text, len(text) if full else len(text) - waiting)
        if full or (piece and not waiting):
            self._window = self._window[-self._n_new :]  # what comes next is read with this piece before it
            self._n_new = 0
            self._shown = self._decode(self._window)
        return piece

    def flush(self) -> str:
        """The rest at the end: bytes that never became a character, as U+FFFD."""
        text = self._decode(self._window)
        return self._show(text, len(text))

    def _show(self, text: str, end: int) -> str:
        piece = text[len(self._shown) : end]
        self._shown += piece
        return piece


class StopStrings:
    """Cuts a growing text just before the first stop string in it, however the text is cut into pieces.

    First is the one that is complete first; of those that end together, the longest.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        if "" in self._stops:
            raise InputError("a stop string is empty; leave it out")
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """What may be shown now: all but a stop string, or an end that could still become one. Empty once found."""
        if self.found is not None:
            return ""
        text = self._held + text
        matches = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if matches:
            _, start, self.found = min(matches)
            self._held = ""
            return text[:start]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """What was held back and became no stop string."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that begins the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
