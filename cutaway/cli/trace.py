"""`cutaway trace`: one question a verb, answered by a table, as JSON, or as an HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import cyclopts
from cyclopts import Parameter

app = cyclopts.App(name="trace", help="Look inside a model while it reads a text.")
app.command("cutaway.cli.numerics:numerics", name="numerics")
Html = Annotated[str, Parameter(help="Write an HTML page to this file instead.", show_default=False)]
Json = Annotated[bool, Parameter(name="--json", help="Print JSON for programs.", negative="", show_default=False)]


@app.command
def lens(model: str, text: str, /, *, top: int = 5, position: int = -1, html: Html = "", json: Json = False) -> None:
    """The likeliest next tokens, if the model ended after each block.

    :param position: of which token, counted from 0, or from the end as -1
    """

    def answer(loaded: Any, ids: Any) -> list[Any]:
        from cutaway.tracing.lens import logit_lens

        return [logit_lens(loaded.model, ids).table(_names(loaded), _at(position, ids), top)]

    _tell("Logit lens", model, text, answer, html, json)


@app.command
def attribution(
    model: str, text: str, /, *, by: Literal["branch", "head", "neuron"] = "branch", token: str = "",
    position: int = -1, top: int = 20, html: Html = "", json: Json = False,
) -> None:  # fmt: skip
    """Which parts wrote the logit of the next token.

    :param by: whole branches, or attention split into heads, or feed-forward networks into neurons
    :param token: whose logit, one token as text; without it the likeliest
    """

    def answer(loaded: Any, ids: Any) -> list[Any]:
        from cutaway.errors import InputError
        from cutaway.tracing.attribution import attribute

        wanted = loaded.encode(token) if token else [None]
        if len(wanted) != 1:
            raise InputError(
                f"--token {token!r} is {len(wanted)} tokens; give one, such as {loaded.decode(wanted[:1])!r}"
            )
        return [attribute(loaded.model, ids, wanted[0], _at(position, ids), by).table(top)]

    _tell("Direct logit attribution", model, text, answer, html, json)


@app.command
def attention(model: str, text: str, /, *, layer: int = 0, head: int = 0, html: Html = "", json: Json = False) -> None:
    """Where each token looks, in one head."""

    def answer(loaded: Any, ids: Any) -> list[Any]:
        from cutaway.tracing.attention_view import attention as view

        return [view(loaded.model, ids, [loaded.decode([int(i)]) for i in ids[0]], layer, head)]

    _tell("Attention", model, text, answer, html, json)


@app.command
def heads(model: str, /, *, top: int = 5, seed: int = 0, html: Html = "", json: Json = False) -> None:
    """Which heads look at the previous token, an earlier copy, what followed it, or the first token."""

    def answer(loaded: Any, ids: Any) -> list[Any]:
        from cutaway.tracing.heads import head_scores

        return [head_scores(loaded.model, seed=seed).table(top)]

    _tell("Heads", model, None, answer, html, json)


@app.command
def loss(model: str, text: str, /, *, html: Html = "", json: Json = False) -> None:
    """What each token of a text costs, in nats."""

    def answer(loaded: Any, ids: Any) -> list[Any]:
        from cutaway.tracing.lens import token_losses
        from cutaway.tracing.tables import Table

        rows = [(loaded.decode([int(i)]), float(x)) for i, x in zip(ids[0, 1:], token_losses(loaded.model, ids))]
        mean = sum(row[1] for row in rows) / max(len(rows), 1)
        return [Table("Loss of each token", ("token", "nats"), rows, f"mean {mean:.3f}", heat=(1,))]

    _tell("Loss by token", model, text, answer, html, json)


@app.command
def sizes(model: str, text: str, /, *, html: Html = "", json: Json = False) -> None:
    """How large the stream is, and what each branch adds to it."""

    def answer(loaded: Any, ids: Any) -> list[Any]:
        import torch

        from cutaway.tracing.lens import stream_sizes
        from cutaway.tracing.record import record

        with torch.no_grad(), record(loaded.model, "blocks.*.resid_post", "blocks.*.update") as run:
            loaded.model(ids)
        return [stream_sizes(run)]

    _tell("Sizes", model, text, answer, html, json)


def _tell(
    title: str, model: str, text: str | None, answer: Callable[[Any, Any], list[Any]], html: str, as_json: bool
) -> None:
    import torch

    from cutaway.cli.models import load_model
    from cutaway.cli.output import print_json, print_table
    from cutaway.errors import InputError

    loaded = load_model(model)
    ids = None
    if text is not None:
        numbers = loaded.encode(text)
        if len(numbers) < 2:
            raise InputError(f"{text!r} is {len(numbers)} tokens; give a text of at least two")
        ids = torch.tensor([numbers])
    tables = answer(loaded, ids)
    if html:
        from cutaway.tracing.tables import report

        about = f"{loaded.spec.name or model}: {text!r}" if text is not None else loaded.spec.name or model
        Path(html).write_text(report(title, about, *tables), encoding="utf-8")
        print(html)
    elif as_json:
        print_json([table.plain() for table in tables])
    else:
        for table in tables:
            print(table.title)
            left = sum(isinstance(cell, str) for cell in table.rows[0]) if table.rows else 1
            print_table(table.columns, table.texts(), left=left)
            print(table.note) if table.note else None


def _names(loaded: Any) -> list[str]:
    return [loaded.decode([i]) for i in range(loaded.spec.vocab_size)]


def _at(position: int, ids: Any) -> int:
    from cutaway.errors import InputError

    n = ids.shape[1]
    if not -n <= position < n:
        raise InputError(f"--position {position}: the text has {n} tokens, 0 to {n - 1}")
    return position
