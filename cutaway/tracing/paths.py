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
from cutaway.parts.latent_attention import Latent
from cutaway.tap import listening
from cutaway.tracing.patching import Place, Question, Runs, Sweep, chunks
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.record import record
from cutaway.tracing.stacks import gate_of, stack_of, written_by_heads


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
    stack, prefix = stack_of(model)
    n_layers = len(stack.blocks)
    if to.layer is not None and not 0 < to.layer < n_layers:
        raise InputError(f"receiver: layer {to.layer}: no sender stands before it, or the layers end at {n_layers - 1}")
    outputs = tuple(written_by_heads(stack, prefix, "*"))
    runs = Runs.of(model, clean, corrupted, question, *outputs)
    names = [f"{prefix}blocks.{i}.attn.z" for i in range(n_layers if to.layer is None else to.layer)]

    def answers(places: Sequence[Place]) -> Tensor:
        parts = [_Senders(each, runs, outputs, prefix) for each in chunks(places, corrupted)]
        return torch.cat([_sent(model, corrupted, question, to, senders) for senders in parts])

    return runs.sweep(f"Direct paths from each head to {to}", names, answers)


@dataclass(frozen=True)
class _Senders:
    """The sender of each row of a batch."""

    places: Sequence[Place]
    runs: Runs
    outputs: tuple[str, ...]
    prefix: str

    def give(self, name: str, x: Tensor) -> Tensor:
        """Every head as it was in the corrupted run, but each row's sender as in the clean one."""
        x = self.runs.corrupted[name].expand_as(x).clone()
        for row, place in enumerate(self.places):
            if name in (place.tap, gate_of(place.tap)):
                x[row, *place.index] = self.runs.clean[name][0, *place.index]
        return x


def _sent(model: Transformer, base: Prompt, question: Question, to: Receiver, senders: _Senders) -> Tensor:
    batch = base.repeated(len(senders.places))
    if to.layer is None:
        with listening(model, senders.give, *senders.outputs):
            return question.of(model, batch)
    block = f"{senders.prefix}blocks.{to.layer}"
    tap = f"{block}.resid_pre" if to.head is None else f"{block}.attn.{_read(model, to)}"
    with listening(model, senders.give, *senders.outputs), record(model, tap) as reached:
        batch.run(model, last=True)
    index = slice(None) if to.head is None else _head(reached[tap], senders.runs.corrupted[f"{block}.attn.z"], to)

    def receive(name: str, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, index] = reached[tap][:, index]
        return x

    with listening(model, receive, tap):
        return question.of(model, batch)


def _read(model: Transformer, to: Receiver) -> str:
    """The tap of the receiver's q, k or v; latent attention rebuilds its keys, and has them only whole."""
    assert to.layer is not None
    attn = dict(stack_of(model)[0].blocks[to.layer].named_children()).get("attn")
    return "k_rot" if to.side == "k" and isinstance(attn, Latent) else to.side


def _head(received: Tensor, outputs: Tensor, to: Receiver) -> int:
    """The entry of the receiver's tensor: its own head, or the one of keys and values that its group shares."""
    n_heads = outputs.shape[1]
    assert to.head is not None
    if to.head >= n_heads:
        raise InputError(f"receiver: head {to.head}: layer {to.layer} has heads 0 to {n_heads - 1}")
    return to.head // (n_heads // received.shape[1])
