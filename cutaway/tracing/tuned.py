"""The tuned lens: the logit lens with an affine translator after each block, trained to say what the model will say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.parts.step import NOTHING
from cutaway.tracing.lens import Lens, logit_lens
from cutaway.tracing.prompt import Prompt, check_one_row
from cutaway.tracing.record import record
from cutaway.tracing.stacks import check_token_head, read_out, stack_of
from cutaway.tracing.tables import Table

HELD, SCORED = 0.2, 128
"""The share of the prompts, at their end, that no translator is trained on, and how many of their tokens are scored."""
RIDGE = 0.05
"""What holds A back where a translator starts, as a share of the mean square of the stream."""
RATE = 0.02
"""How far, as a share of the last stream's size, one step may move what a translator gives."""

Read = Callable[[Tensor], Tensor]
"""Logits [M V] of states [M D]."""


class Translator(nn.Module):
    """h + A h + b."""

    def __init__(self, matrix: Float[Tensor, "D D"], shift: Float[Tensor, " D"]) -> None:
        super().__init__()
        self.matrix, self.shift = nn.Parameter(matrix), nn.Parameter(shift)

    @classmethod
    def nearest(cls, h: Float[Tensor, "M D"], last: Float[Tensor, "M D"]) -> Translator:
        """The one that comes nearest to the last stream, in closed form.

        min over A, b of sum_t |last_t - h_t - A h_t - b|^2 w_t + ridge |A|^2, w_t = 1 / mean(last_t^2), since a norm
        reads the last stream: what counts is the error as a share of its size.
        """
        h, apart, w = h.double(), (last - h).double(), 1 / last.double().square().mean(-1, keepdim=True)
        middle, shift = (h * w).sum(0) / w.sum(), (apart * w).sum(0) / w.sum()
        x = h - middle
        square = x.T @ (x * w)
        square.diagonal().add_(RIDGE * square.diagonal().mean())
        matrix = torch.linalg.solve(square, x.T @ ((apart - shift) * w)).T
        return cls(matrix.to(last), (shift - matrix @ middle).to(last))

    def forward(self, h: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        return h + F.linear(h, self.matrix, self.shift)


@dataclass(frozen=True)
class TunedLens:
    """`translators` by depth (0 is the embedding); the model itself speaks after the last block.

    `before` and `after` [L]: KL(model, lens) in nats a token on held-out text, of the logit lens and of this one.
    """

    depths: tuple[str, ...]
    translators: tuple[Translator, ...]
    before: Float[Tensor, " L"]
    after: Float[Tensor, " L"]
    n_tokens: tuple[int, int]

    def read(self, model: Transformer, prompt: Prompt) -> Lens:
        """What each depth says of a text, translated."""
        last = len(self.translators)
        with torch.no_grad():
            return logit_lens(model, prompt, lambda i, x: x if i == last else self.translators[i](x))

    def table(self) -> Table:
        """The evidence: how far from the model's own answer each depth is on text that was held out."""
        rows = list(zip(self.depths, self.before.tolist(), self.after.tolist(), strict=True))
        note = (
            f"KL in nats a token on {self.n_tokens[1]} held-out tokens, trained on {self.n_tokens[0]}; mean "
            f"{float(self.before.mean()):.3f} before, {float(self.after.mean()):.3f} after training"
        )
        title = "How far each depth is from what the model says"
        return Table(title, ("after", "logit lens", "tuned lens"), rows, note, (1, 2), "lines")


def tune(
    model: Transformer, prompts: Sequence[Prompt], steps: int = 10, batch: int = 32, seed: int = 0,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> TunedLens:  # fmt: skip
    """Train a translator for the embedding and for each block but the last of the stack that the head reads.

    min over A, b of KL(softmax(head(norm(h_L))), softmax(head(norm(h + A h + b)))), from the translator whose stream is
    nearest to h_L (`Translator.nearest`), over `steps` steps of Adam on `batch` tokens drawn by `seed`, the rate
    falling linearly to 0. The model runs once; the last fifth of the prompts is held out. `report(done, total)` tells
    of the progress. (Belrose et al. 2023, arXiv:2303.08112.)

    Raises InputError for a model without logits of tokens, and fewer than two prompts.
    """
    check_token_head(model)
    n_held = max(round(HELD * len(prompts)), 1)
    if len(prompts) - n_held < 1 or steps < 1 or batch < 1:
        raise InputError(
            f"tuned lens: {len(prompts)} windows of text, {steps} steps of {batch} tokens; give at least two windows "
            "and one step"
        )
    names, train = _states(model, prompts[:-n_held])
    _, held = _states(model, prompts[-n_held:])
    held = held[:, :: -(-held.shape[1] // SCORED)]
    some = torch.zeros(1, 1, dtype=torch.long, device=train.device)
    step = stack_of(model)[0].begin(some, NOTHING, None)
    read: Read = lambda states: read_out(model, states, step)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(train.shape[1], (steps, batch), generator=generator)
    with torch.no_grad():
        aims = [read(train[-1, rows]).log_softmax(-1) for rows in drawn]
        aim = read(held[-1]).log_softmax(-1)
    translators, before, after = [], [], []
    for depth in range(len(train) - 1):
        translators.append(_trained(read, train[depth], train[-1], drawn, aims))
        with torch.no_grad():
            before.append(_kl(aim, read(held[depth])).double())
            after.append(_kl(aim, read(translators[-1](held[depth]))).double())
        report(depth + 1, len(train) - 1)
    n_tokens = train.shape[1], held.shape[1]
    return TunedLens(names[:-1], tuple(translators), torch.stack(before), torch.stack(after), n_tokens)


def _trained(read: Read, h: Tensor, last: Tensor, drawn: Tensor, aims: Sequence[Tensor]) -> Translator:
    """One depth's translator after all steps."""
    translator = Translator.nearest(h, last)
    size, step = (float(x.square().mean(-1).sqrt().median()) for x in (h, last))
    rates = RATE * step / size / h.shape[-1], RATE * step
    groups = [{"params": [x], "lr": rate} for x, rate in zip((translator.matrix, translator.shift), rates, strict=True)]
    adam = torch.optim.Adam(groups)
    parameters = list(translator.parameters())
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, len(drawn))
    for rows, aim in zip(drawn, aims, strict=True):
        with torch.enable_grad():
            loss = _kl(aim, read(translator(h[rows])))
        for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = slope
        adam.step()
        falling.step()
    return translator.requires_grad_(False)


def _kl(aim: Float[Tensor, "M V"], logits: Float[Tensor, "M V"]) -> Float[Tensor, ""]:
    """The mean over tokens of sum p (log p - log q)."""
    return F.kl_div(logits.log_softmax(-1), aim, reduction="batchmean", log_target=True)


def _states(model: Transformer, prompts: Sequence[Prompt]) -> tuple[tuple[str, ...], Float[Tensor, "L M D"]]:
    """The stream after the embedding and after each block, at all tokens of all prompts."""
    _, prefix = stack_of(model)
    found, names = [], ()
    for prompt in prompts:
        check_one_row(prompt)
        with torch.no_grad(), record(model, f"{prefix}embedded", f"{prefix}blocks.*.resid_post") as run:
            prompt.states(model)
        names = tuple(name.removeprefix(prefix).removesuffix(".resid_post") for name in run.names)
        found.append(torch.stack([x[0] for _, x in run.items()]))
    return names, torch.cat(found, 1)
