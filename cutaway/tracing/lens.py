"""What the model would say if it ended early: final norm and head on the stream (nostalgebraist 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import EncoderDecoder
from cutaway.models.stack import Stack
from cutaway.parts.norms import normed
from cutaway.parts.step import Given
from cutaway.tracing.record import Recording, record
from cutaway.tracing.tables import Table

NOTHING = Given()


@dataclass(frozen=True)
class Lens:
    """log-probabilities [L+1 T V] at each depth: `depths` are `embedded`, then `blocks.0`, `blocks.1`, ..."""

    depths: tuple[str, ...]
    log_probabilities: Float[Tensor, "L T V"]

    def table(self, names: list[str], position: int = -1, top: int = 5) -> Table:
        """The likeliest tokens at one position by depth; `names`: the text of each id of the vocabulary."""
        shares, ids = self.log_probabilities[:, position].exp().topk(top)
        rows = [
            (depth, *(f"{names[int(i)]!r} {100 * float(p):.0f}%" for i, p in zip(at, share, strict=True)))
            for depth, at, share in zip(self.depths, ids, shares, strict=True)
        ]
        return Table("Likeliest next token, by depth", ("after", *(str(i + 1) for i in range(top))), rows)

    def ranks(self, token: int, position: int = -1) -> Int[Tensor, " L"]:
        """How many tokens each depth finds likelier than this one."""
        at = self.log_probabilities[:, position]
        return (at > at[:, token, None]).sum(-1)


def logit_lens(model: nn.Module, ids: Int[Tensor, "1 T"], given: Given = NOTHING) -> Lens:
    """softmax(head(final_norm(stream))) after the embedding and after each block, of one text.

    Raises InputError for a model that gives no token's logits, and for more than one row.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> logit_lens(model, torch.tensor([[1, 2, 3]])).depths
    ('embedded', 'blocks.0', 'blocks.1')
    """
    speaking(model)
    if len(ids) != 1:
        raise InputError(f"lens: {len(ids)} rows; give one text")
    side, prefix = stack_of(model)
    with torch.no_grad(), record(model, f"{prefix}embedded", f"{prefix}blocks.*.resid_post") as run:
        model(ids, given)
        states = [run[name] for name in run.names]
        step = side.begin(ids, given, None)
        logits = [model.head(normed(side.final_norm, state), step) for state in states]
    depths = tuple(name.removeprefix(prefix).removesuffix(".resid_post") for name in run.names)
    return Lens(depths, torch.cat(logits).float().log_softmax(-1))


def token_losses(model: nn.Module, ids: Int[Tensor, "1 T"]) -> Float[Tensor, " T-1"]:
    """-log p of each token but the first, in nats, given those before it."""
    speaking(model)
    with torch.no_grad():
        logits = model(ids)[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")


def stream_sizes(run: Recording) -> Table:
    """The root mean square of the stream and of each update, by tap, over rows and tokens of a recording."""
    rows = [(name, float(x.float().square().mean().sqrt())) for name, x in run.items()
            if name.rpartition(".")[2] in ("embedded", "resid_pre", "resid_mid", "resid_post", "update")]  # fmt: skip
    if not rows:
        raise InputError("stream_sizes: record `blocks.*.resid_post` and `blocks.*.update` first")
    return Table("Size of the stream (root mean square)", ("tap", "size"), rows, heat=(1,))


def speaking(model: nn.Module) -> None:
    """Raise InputError unless the model gives logits of tokens."""
    if not isinstance(model.spec.head, (spec.LanguageHead, spec.MaskedHead)):
        raise InputError(f"this needs logits of tokens; the model's head is {model.spec.head.kind!r}")


def stack_of(model: nn.Module) -> tuple[Stack, str]:
    """The stack that the head reads, and what its taps' names begin with."""
    return (model.decoder, "decoder.") if isinstance(model, EncoderDecoder) else (model, "")
