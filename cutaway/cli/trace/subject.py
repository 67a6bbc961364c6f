"""What every verb needs: a model with what it reads, and the forms of an answer."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from cutaway.loaded import Loaded
    from cutaway.tracing.prompt import Prompt
    from cutaway.tracing.tables import Part

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
WRITTEN = 12
"""Tokens that an encoder-decoder writes by itself where no target is given."""


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How the texts are meant."""

    target: Annotated[
        str, Parameter(help="What an encoder-decoder writes; without it, what it says itself.", show_default=False)
    ] = ""
    ids: Annotated[
        bool, Parameter(help="Texts and tokens are numbers: '5 3 9'.", negative="", show_default=False)
    ] = False  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True)
class Out:
    """In which forms the answer is given."""

    html: Annotated[str, Parameter(help="Write an HTML page to this file instead.", show_default=False)] = ""
    png: Annotated[
        str, Parameter(help="Write a picture to this file instead (.png, .svg, .pdf).", show_default=False)
    ] = ""  # fmt: skip
    json: Annotated[
        bool, Parameter(name="--json", help="Print JSON for programs.", negative="", show_default=False)
    ] = False  # fmt: skip

    def __post_init__(self) -> None:
        """Raise InputError for a file that cannot be written, before a model is loaded."""
        for path in filter(None, (self.html, self.png)):
            from cutaway.cli.output import check_target

            check_target(path)
        if self.png:
            from cutaway.tracing.pictures import check_kind

            check_kind(self.png)


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
        import torch

        from cutaway import spec
        from cutaway.errors import InputError
        from cutaway.tracing.prompt import Prompt

        numbers = self._encoded(text, True)
        if not numbers:
            raise InputError(f"{text!r} has no tokens; give a text")
        ids, record = torch.tensor([numbers]), self.loaded.spec
        if not isinstance(record, spec.EncoderDecoder):
            if self.reading.target:
                raise InputError("--target: the model has no encoder, it continues its text; leave the target away")
            return Prompt(ids, None, self.word)
        if record.generation.start_id == "none":
            raise InputError(f"{self.name}: its spec names no id that the decoder begins with (generation.start_id)")
        target = self._target(numbers, written)
        return Prompt(torch.tensor([[int(record.generation.start_id), *target]]), ids, self.word)

    def _target(self, source: list[int], written: int) -> list[int]:
        from cutaway.generation import generate

        if self.reading.target:
            return self._encoded(self.reading.target, False)
        if not written:
            return []
        options = self.loaded.spec.generation.replace(max_tokens=written, temperature=0.0, n_beams=1)
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

    def windows(self, path: str, size: int) -> Iterator[list[int]]:
        """A text file as windows of ids, read as they are asked for; raises InputError for what is no text."""
        from cutaway import spec
        from cutaway.cli.output import reason
        from cutaway.errors import InputError
        from cutaway.tracing.neurons import windows_of

        record = self.loaded.spec
        stack = record.encoder if isinstance(record, spec.EncoderDecoder) else record
        size = size if stack.context_length == "unlimited" else min(size, stack.context_length)
        try:
            with open(path, encoding="utf-8") as file:
                yield from windows_of(file, lambda text: self._encoded(text, False), size)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path or repr(path)}: cannot be read as text ({reason(error)}); give a UTF-8 file"
            ) from None

    def tell(self, title: str, parts: Sequence[Part], out: Out, about: str | None = None) -> None:
        """Print the answer, or write it into the files that were asked for."""
        from cutaway.cli.output import print_json, write
        from cutaway.tracing.pictures import save
        from cutaway.tracing.tables import report

        files = [name for name in (out.html, out.png) if name]
        if out.html:
            write(out.html, report(title, self.name if about is None else f"{self.name}: {about}", *parts))
        if out.png:
            save(parts, out.png)
        if out.json:
            print_json([part.plain() for part in parts])
        elif files:
            print("\n".join(files))
        else:
            for number, part in enumerate(parts):
                print() if number else None
                show(part)


def show(part: Part) -> None:
    """Print a table or a grid within the width of the terminal: long words are cut."""
    from cutaway.cli.output import console, print_table
    from cutaway.tracing.tables import Grid

    table = part.table(console.width) if isinstance(part, Grid) else part
    rows = [list(row) for row in table.texts()]
    left = sum(isinstance(cell, str) for cell in table.rows[0]) if table.rows else 1
    left = (
        1
        if isinstance(part, Grid) and not any(isinstance(x, str) and not _number(x) for x in table.rows[0][1:])
        else left
    )
    widths = [max(len(row[i]) for row in (table.columns, *rows)) for i in range(len(table.columns))]
    while sum(widths) + 2 * len(widths) - 2 > console.width and max(widths[:left]) > 8:
        widths[widths.index(max(widths[:left]))] -= 1
    for row in rows:
        row[:] = [cell if len(cell) <= w else cell[: w - 1] + "…" for cell, w in zip(row, widths, strict=True)]
    console.print(table.title, style="bold", markup=False)
    print_table(table.columns, [tuple(row) for row in rows], left=left)
    for line in table.note.splitlines():
        print(textwrap.fill(line, console.width, subsequent_indent="  "))


def _number(text: str) -> bool:
    return not text or text.lstrip("-").replace(".", "", 1).isdigit()
