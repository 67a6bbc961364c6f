"""What every verb needs: a model with what it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TextIO, TypeVar

from cyclopts import Parameter

from cutaway.cli.options import Ids, Out, Word

if TYPE_CHECKING:
    from cutaway.loaded import Loaded
    from cutaway.tracing.prompt import Prompt
    from cutaway.tracing.tables import Part

T = TypeVar("T")
WRITTEN = 12
"""Tokens that an encoder-decoder writes by itself where no target is given."""


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How the texts are meant."""

    target: Annotated[Word, Parameter(help="what an encoder-decoder writes; without it what it says itself")] = ""
    ids: Ids = False


@dataclass
class Subject:
    """A loaded model, and the texts that it is asked about."""

    loaded: Loaded
    name: str
    reading: Reading = Reading()

    @classmethod
    def of(cls, name: str, reading: Reading = Reading()) -> Subject:
        from cutaway.cli.models import load_model

        loaded = load_model(name)
        loaded.model.requires_grad_(False)
        return cls(loaded, name, reading)

    def prompt(self, text: str, written: int = WRITTEN) -> Prompt:
        """A text as ids. An encoder-decoder reads it as source, and writes the target, or `written` tokens itself."""
        from cutaway import spec

        ids = self._encoded(text, True)
        target: Sequence[int] = ()
        if self.reading.target:
            target = self._encoded(self.reading.target, False)
        elif ids and written and isinstance(self.loaded.spec, spec.EncoderDecoder):
            target = self._answer(ids, written)
        return self.loaded.prompt(ids, target)

    def _answer(self, source: list[int], n: int) -> list[int]:
        from cutaway.generation import generate

        options = self.loaded.spec.generation.replace(max_tokens=n, temperature=0.0, n_beams=1)
        return generate(self.loaded.model, [source], options).ids[0]

    def _encoded(self, text: str, whole: bool) -> list[int]:
        from cutaway.errors import InputError

        if self.reading.ids:
            words = text.replace(",", " ").split()
            if not all(re.fullmatch("-?[0-9]{1,18}", word) for word in words):
                raise InputError(f"{text[:40]!r}: with --ids a text is numbers of tokens, such as '5 3 9'")
            return [int(word) for word in words]
        if self.loaded.tokenizer is None:
            raise InputError(f"{self.name}: the model has no tokenizer; give token numbers with --ids")
        return self.loaded.tokenizer.encode(text, add_special_tokens=whole)

    def word(self, token: int) -> str:
        """The text of an id."""
        return f"<{token}>" if self.loaded.tokenizer is None else self.loaded.decode([token])

    def token(self, option: str, text: str) -> int:
        """The one token that a text is; raises InputError for a text of none or several."""
        from cutaway.errors import InputError

        numbers = self._encoded(text, False)
        if len(numbers) != 1:
            pieces = ", ".join(repr(self.word(i)) for i in numbers[:4])
            raise InputError(f"{option} {text!r} is {len(numbers)} tokens ({pieces}); give one token, with its space")
        return numbers[0]

    def position(self, given: int | None, prompt: Prompt) -> int:
        """The column asked about: as given, else the mask of a masked model, else the last."""
        from cutaway import spec
        from cutaway.errors import InputError

        numbers, words = prompt.ids[0].tolist(), self.loaded.tokenizer
        if given is not None:
            if not -len(numbers) <= given < len(numbers):
                raise InputError(f"--position {given}: the text has {len(numbers)} tokens, 0 to {len(numbers) - 1}")
            return given
        mask = None if words is None else words.special.get("mask")
        masked = isinstance(self.loaded.spec.head, spec.MaskedHead) and mask in numbers
        return numbers.index(mask) if masked else -1

    def prompts(self, path: str, size: int, encoder: bool = False) -> Iterator[Prompt]:
        """A text file as what the model, or its encoder, reads, as it is asked for: windows of at most `size` tokens.

        Of an encoder-decoder each line is a source, with its target after a tab, else what the model itself writes.
        Raises InputError for what is no text.
        """
        import torch

        from cutaway import spec
        from cutaway.tracing.neurons import windows_of
        from cutaway.tracing.prompt import Prompt

        record = self.loaded.spec
        two = isinstance(record, spec.EncoderDecoder)
        limit = (record.encoder if encoder else record.decoder).context_length if two else record.context_length
        size = size if limit == "unlimited" else min(size, limit - two)  # a decoder begins with an id of its own
        if encoder or not two:
            windows = _read(path, lambda file: windows_of(file, lambda text: self._encoded(text, False), size))
            rows = (torch.tensor([window]) for window in windows)
            return (Prompt(ids, ids if encoder else None, self.word) for ids in rows)
        lines = _read(path, lambda file: (line.strip("\n").partition("\t") for line in file if line.strip()))
        pairs = ((source, replace(self, reading=replace(self.reading, target=target))) for source, _, target in lines)
        return (subject.prompt(source, size) for source, subject in pairs)

    def tell(self, title: str, parts: Sequence[Part], out: Out, about: str | None = None) -> None:
        """Print the answer, or write it into the files that were asked for."""
        from cutaway.cli.tables import tell

        tell(title, self.name if about is None else f"{self.name}: {about}", parts, out)


def _read(path: str, pieces: Callable[[TextIO], Iterator[T]]) -> Iterator[T]:
    """The pieces of a text file; raises InputError for what is no text."""
    from cutaway.cli.output import reason
    from cutaway.errors import InputError

    try:
        with open(path, encoding="utf-8") as file:
            yield from pieces(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path or repr(path)}: cannot be read as text ({reason(error)}); give a UTF-8 file") from None
