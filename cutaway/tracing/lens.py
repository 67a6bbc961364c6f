"""What the model would say if it ended early: final norm and head on the stream (nostalgebraist 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.tracing.prompt import Prompt, check_one_row
from cutaway.tracing.record import Recording, record
from cutaway.tracing.stacks import check_token_head, read_out, stack_of
from cutaway.tracing.tables import Grid, Table, readable

Translate = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True)
class Lens:
    """log-probabilities [L+1 T V] at each depth: `depths` are `embedded`, then `blocks.0`, `blocks.1`, ..."""

    depths: tuple[str, ...]
    log_probabilities: Float[Tensor, "L T V"]
    prompt: Prompt

    def table(self, position: int = -1, top: int = 5) -> Table:
        """The likeliest tokens at one position by depth; its picture is that of all positions."""
        top = min(top, self.log_probabilities.shape[-1])
        shares, ids = self.log_probabilities[:, position].exp().topk(top)
        rows = [
            (depth, *(f"{self.prompt.name(int(i))!r} {100 * float(p):.0f}%" for i, p in zip(at, share, strict=True)))
            for depth, at, share in zip(self.depths, ids, shares, strict=True)
        ]
        columns = ("after", *(str(i + 1) for i in range(top)))
        return Table("Likeliest token, by depth", columns, rows, grids=(self.grid(),), listed=True)

    def grid(self) -> Grid:
        """The likeliest token after each depth, at each position, coloured by its probability."""
        best = self.log_probabilities.max(-1)
        name = self.prompt.name
        words = tuple(tuple(readable(name(i).strip()) or repr(name(i)) for i in row) for row in best.indices.tolist())
        title = "Likeliest token by depth, coloured by its probability"
        return Grid(title, self.depths, self.prompt.words, best.values.exp(), ("after", "token"), words=words)

    def ranks(self, token: int, position: int = -1) -> Int[Tensor, " L"]:
        """How many tokens each depth finds likelier than this one."""
        at = self.log_probabilities[:, position]
        return (at > at[:, token, None]).sum(-1)


def logit_lens(model: Transformer, prompt: Prompt, translate: Translate = lambda depth, x: x) -> Lens:
    """softmax(head(final_norm(stream))) after the embedding and after each block, of one text.

    `translate(depth, stream)` is read out instead of the stream, depth 0 being the embedding (`tuned`).

    Raises InputError for a model that gives no token's logits, and for more than one row.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> logit_lens(model, Prompt(torch.tensor([[1, 2, 3]]))).depths
    ('embedded', 'blocks.0', 'blocks.1')
    """
    check_token_head(model)
    check_one_row(prompt)
    side, prefix = stack_of(model)
    with torch.no_grad(), record(model, f"{prefix}embedded", f"{prefix}blocks.*.resid_post") as run:
        given = prompt.given(model)
        model(prompt.ids, given)
        step = side.begin(prompt.ids, given, None)
        states = [translate(depth, run[name]) for depth, name in enumerate(run)]
        logits = [read_out(model, state, step) for state in states]
    depths = tuple(name.removeprefix(prefix).removesuffix(".resid_post") for name in run.names)
    return Lens(depths, torch.cat(logits).float().log_softmax(-1), prompt)


def next_token_losses(model: Transformer, prompt: Prompt) -> Float[Tensor, " T-1"]:
    """-log p of each token but the first, in nats, given those before it; none of a text of one token.

    Raises InputError for a model that does not predict the next token, and for more than one row.
    """
    if not isinstance(model.spec.head, spec.LanguageHead):
        raise InputError(f"loss: this needs a model of the next token; the model's head is {model.spec.head.kind!r}")
    check_one_row(prompt)
    if prompt.ids.shape[1] < 2:
        return torch.empty(0, dtype=torch.float64)
    with torch.no_grad():
        logits = prompt.run(model)[0, :-1].double()
    return F.cross_entropy(logits, prompt.ids[0, 1:], reduction="none")


def stream_sizes(run: Recording) -> Table:
    """The root mean square of the stream after each block and of each branch's update, over rows and tokens.

    Raises InputError for a recording that has neither `blocks.*.resid_post` nor `blocks.*.update`.
    """
    found: dict[str, dict[str, float]] = {}
    for name, x in run.items():
        path, _, tap = name.rpartition(".")
        block, _, branch = path.rpartition(".") if tap == "update" else (path, "", "stream")
        if tap in ("resid_post", "update"):
            found.setdefault(block, {})[branch] = float(x.float().square().mean().sqrt())
    if not found:
        raise InputError("stream_sizes: record `blocks.*.resid_post` and `blocks.*.update` first")
    kinds = list(dict.fromkeys(["stream", *(kind for sizes in found.values() for kind in sizes)]))
    rows = [(block, *(sizes.get(kind, 0.0) for kind in kinds)) for block, sizes in found.items()]
    note = "root mean square of the stream after each block, and of what each branch added to it"
    heat = tuple(range(1, len(kinds) + 1))
    return Table("Size of the stream", ("block", *kinds), rows, note, heat, "lines")
