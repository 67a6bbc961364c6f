"""The tuned lens: the logit lens with an affine translator after each block, trained to say what the model will say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Transformer
from cutaway.parts.norms import normed
from cutaway.parts.step import NOTHING, Given
from cutaway.tracing.lens import Lens, logit_lens
from cutaway.tracing.record import record
from cutaway.tracing.stacks import token_head
from cutaway.tracing.tables import Table

HELD = 0.2
"""The share of the text, at its end, that no translator is trained on."""
RATE = 0.05
"""How far, as a share of the stream's size, one step may move what a translator gives."""


class Translator(nn.Module):
    """h + A h + b, started at the identity: A and b are 0."""

    def __init__(self, d_model: int, size: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.size = size
        self.matrix = nn.Parameter(torch.zeros(d_model, d_model, dtype=dtype))
        self.shift = nn.Parameter(torch.zeros(d_model, dtype=dtype))

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

    def read(self, model: Transformer, ids: Int[Tensor, "1 T"], given: Given = NOTHING) -> Lens:
        """What each depth says of a text, translated."""
        last = len(self.translators)
        with torch.no_grad():
            return logit_lens(model, ids, given, lambda i, x: x if i == last else self.translators[i](x))

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
    model: Transformer, windows: Sequence[Sequence[int]], steps: int = 40, batch: int = 32, seed: int = 0,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> TunedLens:  # fmt: skip
    """Train a translator for the embedding and for each block but the last, on windows of a text.

    min over A, b of KL(softmax(head(norm(h_L))), softmax(head(norm(h + A h + b)))), over `steps` steps of Adam on
    `batch` tokens drawn by `seed`, the rate falling linearly to 0; its unit is the stream's own size at that depth. The
    last fifth of the windows is held out. `report(done, total)` tells of the progress.
    (Belrose et al. 2023, arXiv:2303.08112.)

    Raises InputError for an encoder-decoder, a model without logits of tokens, and fewer than two windows.
    """
    token_head(model)
    if isinstance(model, EncoderDecoder):
        raise InputError("tuned lens: an encoder-decoder would need pairs of texts; use a model with one stack")
    n_held = max(round(HELD * len(windows)), 1)
    if len(windows) - n_held < 1 or steps < 1 or batch < 1:
        raise InputError(
            f"tuned lens: {len(windows)} windows of text, {steps} steps of {batch} tokens; give at least two windows "
            "and one step"
        )
    names, train = _states(model, windows[:-n_held])
    _, held = _states(model, windows[-n_held:])
    read = _Reader(model)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(train.shape[1], (steps, batch), generator=generator)
    aims = [read(train[-1, rows]).log_softmax(-1) for rows in drawn]
    aim = read(held[-1]).log_softmax(-1)
    translators, before, after = [], [], []
    for depth in range(len(train) - 1):
        before.append(_kl(aim, read(held[depth])))
        translators.append(_trained(read, train[depth], drawn, aims))
        with torch.no_grad():
            after.append(_kl(aim, read(translators[-1](held[depth]))))
        report(depth + 1, len(train) - 1)
    tokens = train.shape[1], held.shape[1]
    evidence = (torch.stack([x.detach().double() for x in each]) for each in (before, after))
    return TunedLens(names[:-1], tuple(translators), *evidence, tokens)


def _trained(read: _Reader, states: Tensor, drawn: Tensor, aims: Sequence[Tensor]) -> Translator:
    """One depth's translator after all steps."""
    size = float(states.square().mean(-1).sqrt().median())
    translator = Translator(states.shape[-1], size, states.dtype)
    rates = RATE / states.shape[-1], RATE * size
    groups = [{"params": [x], "lr": rate} for x, rate in zip((translator.matrix, translator.shift), rates, strict=True)]
    adam = torch.optim.Adam(groups)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, len(drawn))
    for rows, aim in zip(drawn, aims, strict=True):
        adam.zero_grad()
        with torch.enable_grad():
            _kl(aim, read(translator(states[rows]))).backward()
        adam.step()
        falling.step()
    return translator.requires_grad_(False)


class _Reader:
    """head(final_norm(h)) [M V] of states [M D]."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.step = model.begin(torch.zeros(1, 1, dtype=torch.long), NOTHING, None)

    def __call__(self, states: Float[Tensor, "M D"]) -> Float[Tensor, "M V"]:
        return self.model.head(normed(self.model.final_norm, states), self.step)


def _kl(aim: Float[Tensor, "M V"], logits: Float[Tensor, "M V"]) -> Float[Tensor, ""]:
    """The mean over tokens of sum p (log p - log q)."""
    return F.kl_div(logits.log_softmax(-1), aim, reduction="batchmean", log_target=True)


def _states(model: Transformer, windows: Sequence[Sequence[int]]) -> tuple[tuple[str, ...], Float[Tensor, "L M D"]]:
    """The stream after the embedding and after each block, at all tokens of all windows."""
    found, names = [], ()
    for window in windows:
        with torch.no_grad(), record(model, "embedded", "blocks.*.resid_post") as run:
            model.hidden(torch.tensor([list(window)]))
        names = tuple(name.removesuffix(".resid_post") for name in run.names)
        found.append(torch.stack([x[0] for _, x in run.items()]))
    return names, torch.cat(found, 1)
