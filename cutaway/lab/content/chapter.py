"""One chapter from one Markdown file.

A file begins with a TOML head between two lines `+++` (title, lead, side_trips), then sections:

    ## residual | 3. The residual path      a section with its id and title
    ## goals                                or one of `goals`, `recap`, `keep`, `mistakes`: a list, one item a `-`

Between paragraphs of Markdown (see `markup`) stand directives. These take one line:

    ::: question 16.1                       ::: exercise layer-norm
    ::: lock 16-1 | 16.1 16.2               everything below stays hidden until these are answered right
    ::: model attention                     the place of the live model's part

and these reach to the next line `:::` of their own:

    ::: lab rope | Title                    a caption; a last line `state: {...}` (JSON) sets the lab's first state
    ::: formula Label                       TeX
    ::: table Caption                       a Markdown table
    ::: example                             numbers that one can check by hand
    ::: fold stuck | Title                  `stuck` or `deeper`; may hold any of the above except a lock
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from cutaway.errors import InputError
from cutaway.lab.content import markup

LISTS = ("goals", "recap", "keep", "mistakes")
FOLDS = ("stuck", "deeper")
_HEAD = {"title": str, "lead": str, "side_trips": list}


def read_chapter(path: Path) -> dict:
    """Everything in the file, as plain data: head, `sections` with their blocks, and the four lists.

    Raises InputError naming the file and line of whatever is malformed or missing.
    """
    reader = _Reader(path)
    head = reader.head()
    sections: list[dict] = []
    lists: dict[str, list[str]] = {}
    for number, name, body in reader.sections():
        if name in LISTS:
            lists[name] = reader.items(number, body)
        else:
            id, title = reader.parts(number, name, 2)
            sections.append({"id": id, "title": markup.line(title), "blocks": reader.blocks(body)})
    missing = [name for name in LISTS if name not in lists]
    if missing:
        raise InputError(f"{path}: no section '## {missing[0]}'; every chapter has {', '.join(LISTS)}")
    return {"id": path.stem, **head, "sections": sections, **lists}


def walk(blocks: list[dict]) -> Iterator[dict]:
    """Every block in reading order, those inside folds included."""
    for block in blocks:
        yield block
        yield from walk(block.get("blocks", []))


_Line = tuple[int, str]


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[_Line] = list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))

    def error(self, number: int, message: str) -> InputError:
        return InputError(f"{self.path}:{number}: {message}")

    def head(self) -> dict:
        marks = [index for index, (_, text) in enumerate(self.lines) if text == "+++"]
        if len(marks) < 2 or marks[0] != 0:
            raise self.error(1, "a chapter begins with a TOML head between two lines '+++'")
        text = "\n".join(text for _, text in self.lines[1 : marks[1]])
        self.lines = self.lines[marks[1] + 1 :]
        try:
            head = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise self.error(1, f"the head is not TOML: {error}") from None
        if {key: type(value) for key, value in head.items()} != _HEAD:
            raise self.error(1, f"the head holds {sorted(head)}; it needs exactly {', '.join(_HEAD)}")
        return {"title": head["title"], "lead": markup.line(head["lead"]), "side_trips": head["side_trips"]}

    def sections(self) -> Iterator[tuple[int, str, list[_Line]]]:
        starts = [index for index, (_, text) in enumerate(self.lines) if text.startswith("## ")]
        for number, text in self.lines[: starts[0] if starts else None]:
            if text.strip():
                raise self.error(number, "text before the first '## section'")
        for start, end in zip(starts, [*starts[1:], len(self.lines)], strict=True):
            number, text = self.lines[start]
            yield number, text[3:].strip(), self.lines[start + 1 : end]

    def parts(self, number: int, text: str, count: int) -> list[str]:
        parts = [part.strip() for part in text.split(" | ")]
        if len(parts) != count or not all(parts):
            raise self.error(number, f"{text!r}: {count} parts with ' | ' between them are needed")
        return parts

    def items(self, number: int, body: list[_Line]) -> list[str]:
        text = "\n".join(text for _, text in body).strip()
        items = re.split(r"^- ", text, flags=re.MULTILINE)
        if items[0].strip() or len(items) < 2:
            raise self.error(number, "this section is a list: lines that begin with '- ' and nothing else")
        return [markup.line(" ".join(item.split())) for item in items[1:]]

    def blocks(self, body: list[_Line], inside: str = "section") -> list[dict]:
        blocks: list[dict] = []
        prose: list[str] = []
        lines = iter(body)
        for number, text in lines:
            if not text.startswith(":::"):
                prose.append(text)
                continue
            self._close(prose, blocks)
            kind, _, rest = text[3:].strip().partition(" ")
            if not kind:
                raise self.error(number, "this ':::' closes nothing")
            build: Callable[[int, str], dict] | None = getattr(self, f"_line_{kind}", None)
            if build is not None:
                blocks.append(build(number, rest.strip()))
            else:
                blocks.append(self._block(kind, number, rest.strip(), self._body(number, lines)))
            if inside == "fold" and kind == "lock":
                raise self.error(number, "a lock cannot stand in a fold")
        self._close(prose, blocks)
        return blocks

    def _close(self, prose: list[str], blocks: list[dict]) -> None:
        text = "\n".join(prose).strip()
        prose.clear()
        if text:
            blocks.append({"type": "html", "html": markup.html(text)})

    def _body(self, number: int, lines: Iterator[_Line]) -> list[_Line]:
        """The lines up to the directive's own `:::`, those of inner directives included."""
        body: list[_Line] = []
        depth = 1
        for line in lines:
            if line[1].startswith(":::"):
                kind = line[1][3:].strip().partition(" ")[0]
                if not kind:
                    depth -= 1
                elif not hasattr(self, f"_line_{kind}"):
                    depth += 1
                if depth == 0:
                    return body
            body.append(line)
        raise self.error(number, "this directive is never closed by a line ':::'")

    def _block(self, kind: str, number: int, rest: str, body: list[_Line]) -> dict:
        text = "\n".join(text for _, text in body).strip()
        match kind:
            case "lab":
                return self._lab(number, rest, text)
            case "formula":
                return {"type": "formula", "tex": text, "label": rest}
            case "table":
                return self._table(number, rest, text)
            case "example":
                return {"type": "example", "html": markup.html(text)}
            case "fold":
                fold, title = self.parts(number, rest, 2)
                if fold not in FOLDS:
                    raise self.error(number, f"unknown fold {fold!r}; it is one of {', '.join(FOLDS)}")
                title = markup.line(title)
                return {"type": "fold", "kind": fold, "title": title, "blocks": self.blocks(body, "fold")}
        raise self.error(number, f"unknown directive {kind!r}")

    def _lab(self, number: int, rest: str, text: str) -> dict:
        lab, title = self.parts(number, rest, 2)
        caption, _, state = text.partition("\nstate: ")
        try:
            first = json.loads(state or "{}")
        except json.JSONDecodeError as error:
            raise self.error(number, f"the lab's state is not JSON: {error}") from None
        return {"type": "lab", "lab": lab, "title": title, "caption": markup.line(caption), "state": first}

    def _table(self, number: int, caption: str, text: str) -> dict:
        rows = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in text.splitlines()]
        if len(rows) < 3 or len({len(row) for row in rows}) != 1 or set("".join(rows[1])) > set("-:"):
            raise self.error(number, "a table has a head, a line of '---' and rows of the same length")
        head, _, *body = [[markup.line(cell) for cell in row] for row in rows]
        return {"type": "table", "caption": markup.line(caption), "head": head, "rows": body}

    def _line_question(self, number: int, rest: str) -> dict:
        return {"type": "question", "id": rest}

    def _line_exercise(self, number: int, rest: str) -> dict:
        return {"type": "exercise", "id": rest}

    def _line_lock(self, number: int, rest: str) -> dict:
        id, after = self.parts(number, rest, 2)
        return {"type": "lock", "id": id, "after": after.split()}

    def _line_model(self, number: int, rest: str) -> dict:
        return {"type": "model", "part": rest}
