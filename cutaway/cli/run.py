"""`cutaway run` and `cutaway chat`: the text as it grows, then what happened inside."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from cutaway import spec
from cutaway.ablation.knobs import listed
from cutaway.cli.encode import show_reading
from cutaway.cli.inside import Inside
from cutaway.cli.models import load_model
from cutaway.cli.options import Writing
from cutaway.cli.output import console, print_filled, print_json
from cutaway.cli.removal import Removal, show_parts
from cutaway.errors import InputError
from cutaway.generation.prompts import as_seeds
from cutaway.loaded import Loaded


@dataclass(frozen=True)
class Request:
    """What the caller asked for; `inside` shows the pass over the prompt, `remove` what goes wrong without some parts.

    `losses`: the file whose loss is measured with and without them; without it the prompt's.
    """

    model: str
    text: str
    writing: Writing = Writing()
    remove: tuple[str, ...] = ()
    losses: str = ""
    inside: bool = False
    as_json: bool = False


def show_run(request: Request) -> None:
    """Stream the continuation, then the inside of the prompt's pass; a model that writes none gives what it can."""
    if request.remove == ("help",):
        show_parts(request.model, request.as_json)
        return
    _check(request.writing)
    loaded = load_model(request.model)
    if not isinstance(loaded.spec.head, spec.LanguageHead):
        _show_reading(loaded, request)
        return
    ids = _ids(loaded, request)
    removal = _removal(loaded, ids, request)
    if request.as_json:
        print_json(_result(loaded, ids, request) | ({} if removal is None else {"without": removal.plain()}))
        return
    if request.inside:
        kind = "as a chat turn" if request.writing.chat else "as raw text; --chat puts it into the chat template"
        print_filled(f"{request.model} reads {len(ids)} token{'s' * (len(ids) != 1)} {kind}", style="dim")
        console.print(request.text, style="bold", end="", markup=False, soft_wrap=True)
    for piece in request.writing.stream(loaded, ids):
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()
    if request.inside:
        Inside(loaded, ids).show()
    if removal is not None:
        removal.show()


def _show_reading(loaded: Loaded, request: Request) -> None:
    """What a model that writes no text makes of one."""
    if given := request.writing.given():
        them = "it" if len(given) == 1 else "them"
        raise InputError(f"{', '.join(given)}: {request.model} writes no text; leave {them} out")
    ids = loaded.encode(request.text)
    removal, inside = _removal(loaded, ids, request), Inside(loaded, ids) if request.inside else None
    more = {} if inside is None else {"inside": inside.plain()}
    more |= {} if removal is None else {"without": removal.plain()}
    show_reading(loaded, request.text, request.as_json, more)
    if request.as_json:
        return
    if inside is not None:
        inside.show()
    if removal is not None:
        removal.show()


def _removal(loaded: Loaded, ids: list[int], request: Request) -> Removal | None:
    """What the parts asked for did; with --trace alone the feed-forward networks, where there are any."""
    asked = request.remove
    if not asked and request.inside and "ffn" in listed(loaded.spec):
        asked = ("ffn",)
    if not asked:
        if request.losses:
            raise InputError(
                "--text: it needs --remove, whose loss it measures; `cutaway eval` measures the whole model"
            )
        return None
    return Removal(loaded, ids, asked, request.losses, request.writing if request.remove else None)


def _result(loaded: Loaded, ids: list[int], request: Request) -> dict[str, Any]:
    """The same as plain data."""
    written = "".join(request.writing.stream(loaded, ids))
    assert loaded.last is not None
    row, timing = loaded.last.rows[0], loaded.last.timing
    result: dict[str, Any] = {
        "model": loaded.spec.name or request.model,
        "prompt": request.text,
        "prompt_ids": ids,
        "text": written,
        "ids": row.ids,
        "reason": str(row.reason),
        "read_tokens_per_s": timing.prompt_tokens_per_second,
        "written_tokens_per_s": timing.tokens_per_second,
    }
    if request.inside:
        result["inside"] = Inside(loaded, ids).plain()
    return result


def chat(model: str, writing: Writing, as_json: bool) -> None:
    """Read lines, answer each with the whole history before it; as JSON a line an answer."""
    _check(writing)
    loaded = load_model(model)
    if not isinstance(loaded.spec.head, spec.LanguageHead):
        raise InputError(f"{model}: its {loaded.spec.head.kind} head writes no text; name a chat model")
    if loaded.tokenizer is None or not loaded.tokenizer.templates:
        raise InputError(f"{model}: the model has no chat template; use `cutaway run`")
    history: list[dict[str, str]] = []
    while line := _asked():
        history.append({"role": "user", "content": line})
        pieces = []
        for piece in writing.stream(loaded, loaded.tokenizer.encode_chat(history)):
            pieces.append(piece)
            if not as_json:
                sys.stdout.write(piece)
                sys.stdout.flush()
        history.append({"role": "assistant", "content": "".join(pieces)})
        if as_json:
            print_json(history[-1])
        else:
            print()


def piped() -> str:
    """All of standard input; raises InputError for what is no UTF-8."""
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise _no_text(error) from None


def _asked() -> str:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""
    except UnicodeDecodeError as error:
        raise _no_text(error) from None


def _no_text(error: UnicodeDecodeError) -> InputError:
    return InputError(f"standard input: byte {error.start} is not {error.encoding}; give a UTF-8 text")


def _check(writing: Writing) -> None:
    """Raise SpecError or InputError for what no model could take, before one is loaded."""
    spec.Generation().replace(**writing.options())
    as_seeds(writing.seed, 1)


def _ids(loaded: Loaded, request: Request) -> list[int]:
    if loaded.tokenizer is None:
        raise InputError(f"{request.model}: it has no tokenizer, so it cannot read text; name one that has")
    if request.writing.chat:
        return loaded.tokenizer.encode_chat([{"role": "user", "content": request.text}])
    return loaded.tokenizer.encode(request.text)
