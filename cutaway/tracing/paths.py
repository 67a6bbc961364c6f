"""Path patching: which heads does a later head, layer or the logits get it from directly?

(Wang et al. 2022, arXiv:2211.00593; Goldowsky-Dill et al. 2023, arXiv:2304.05969.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.tap import listening
from cutaway.tracing.lens import stack_of
from cutaway.tracing.patching import Question, Sweep, chunks, comparable, told_apart
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import Recording, record


@dataclass(frozen=True)
class Receiver:
    """What is reached: the logits (`layer` None), all of a layer (`head` None), or the q, k or v of one head.

    Where heads share keys and values, k and v are those of the head's group.
    """

    layer: int | None = None
    head: int | None = None
    side: Literal["q", "k", "v"] = "q"

    @classmethod
    def parse(cls, text: str) -> Receiver:
        """`logits`, `20` (all of layer 20) or `20.3.q` (the query of its head 3); raises InputError otherwise.

        >>> Receiver.parse("20.3.k")
        Receiver(layer=20, head=3, side='k')
        """
        match text.split("."):
            case ["logits"]:
                return cls()
            case [layer] if _index(layer):
                return cls(int(layer))
            case [layer, head, ("q" | "k" | "v") as side] if _index(layer) and _index(head):
                return cls(int(layer), int(head), side)
        raise InputError(
            f"receiver {text[:40]!r}: write logits, 20 (all of layer 20), or 20.3.q (its head 3's q, k or v)"
        )

    def __str__(self) -> str:
        if self.layer is None:
            return "the logits"
        return f"layer {self.layer}" + ("" if self.head is None else f" head {self.head}'s {self.side}")


def _index(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


@torch.no_grad()
def path_sweep(
    model: Transformer, clean: Prompt, corrupted: Prompt, question: Question, to: Receiver = Receiver()
) -> Sweep:
    """The effect of each head's clean output on the answer along the paths that lead straight to the receiver.

    On the corrupted prompt one head (the sender) gives its clean output, all other heads are held at their corrupted
    one, and norms and feed-forward networks compute on. What the receiver then reads is put into a plain corrupted run.
    Effects are normalised as in `patch_sweep`; senders stand in layers before the receiver.

    Raises InputError as `patch_sweep`, and for a receiver that the model does not have.
    """
    comparable(model, clean, corrupted)
    stack, prefix = stack_of(model)
    n_layers = len(stack.blocks)
    if to.layer is not None and not 0 < to.layer < n_layers:
        raise InputError(f"receiver: layer {to.layer}: no sender stands before it, or the layers end at {n_layers - 1}")
    outputs = f"{prefix}blocks.*.z"
    with record(model, outputs) as sent:
        start = float(question.of(model, clean))
    with record(model, outputs) as held:
        end = float(question.of(model, corrupted))
    told_apart(start, end)
    names = [f"{prefix}blocks.{i}.attn.z" for i in range(n_layers if to.layer is None else to.layer)]
    widths = [held[name].shape[1] if name in held else 0 for name in names]
    senders = [(row, column) for row, width in enumerate(widths) for column in range(width)]
    found = []
    for chunk in chunks(senders, corrupted):
        rows = [(names[layer], head) for layer, head in chunk]
        found.append(_sent(model, corrupted, question, to, _Runs(rows, sent, held, outputs, prefix)))
    effects = torch.full((len(names), max(widths)), torch.nan, dtype=torch.float64)
    effects[tuple(torch.tensor(senders).T)] = (torch.cat(found) - end) / (start - end)
    labels = tuple(map(str, range(len(names)))), tuple(map(str, range(max(widths))))
    return Sweep(f"Direct paths from each head to {to}", *labels, ("layer", "head"), effects, start, end)


@dataclass(frozen=True)
class _Runs:
    """The sender of each row of a batch, and what heads gave in both runs."""

    senders: Sequence[tuple[str, int]]
    sent: Recording
    held: Recording
    outputs: str
    prefix: str

    def give(self, name: str, x: Tensor) -> Tensor:
        """Every head as it was in the corrupted run, but each row's sender as in the clean one."""
        x = self.held[name].expand_as(x).clone()
        for row, (tap, head) in enumerate(self.senders):
            if tap == name:
                x[row, head] = self.sent[name][0, head]
        return x


def _sent(model: Transformer, base: Prompt, question: Question, to: Receiver, runs: _Runs) -> Tensor:
    batch = base.repeated(len(runs.senders))
    if to.layer is None:
        with listening(model, runs.give, runs.outputs):
            return question.of(model, batch)
    block = f"{runs.prefix}blocks.{to.layer}"
    tap = f"{block}.resid_pre" if to.head is None else f"{block}.attn.{to.side}"
    with listening(model, runs.give, runs.outputs), record(model, tap) as reached:
        batch.run(model, last=True)
    index = slice(None) if to.head is None else _head(reached[tap], f"{block}.attn.z", to, runs.held)

    def receive(name: str, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, index] = reached[tap][:, index]
        return x

    with listening(model, receive, tap):
        return question.of(model, batch)


def _head(received: Tensor, outputs: str, to: Receiver, held: Recording) -> int:
    """The entry of the receiver's tensor: its own head, or the one of keys and values that its group shares."""
    n_heads = held[outputs].shape[1]
    assert to.head is not None
    if to.head >= n_heads:
        raise InputError(f"receiver: head {to.head}: layer {to.layer} has heads 0 to {n_heads - 1}")
    return to.head // (n_heads // received.shape[1])
