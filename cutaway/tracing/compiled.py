"""A model and some of its tensors as one compiled graph: a recording that runs at the speed of compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.models.example import example
from cutaway.models.one_stack import OneStack
from cutaway.tap import check_model, listening
from cutaway.tracing.names import ours
from cutaway.tracing.record import Recording, check_answered


class CompiledRecording:
    """`run(ids)` gives a model's output and the Recording of the taps that were named when it was made.

    `record` leaves compiled code for the forwards; here the taps are part of the graph: one for this set of names and
    all sizes of ids, but that a single row and a single token take one of their own. The compiler may fuse what lies
    between the taps, so last bits may differ from `record`.
    Weights stay the model's: what is loaded into it, or trained, is seen. Each ids [B, T] is a whole text: no cache, no
    padding; images are read in float32. `backend` is torch.compile's; its own, inductor, needs a C++ compiler.

    Raises InputError for a model of two stacks, and for a name that no tap has.

    >>> import torch, cutaway
    >>> from cutaway.tracing.compiled import CompiledRecording
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> run = CompiledRecording(model, "blocks[-1].attn.pattern", backend="eager")
    >>> logits, recording = run(torch.tensor([[1, 2, 3]]))
    >>> tuple(logits.shape), tuple(recording["blocks.1.attn.pattern"].shape)
    ((1, 3, 256), (1, 4, 3, 3))
    """

    def __init__(self, model: nn.Module, *names: str, backend: str | Callable[..., Any] = "inductor") -> None:
        check_model(model)
        if not isinstance(model, OneStack):
            raise InputError(f"model: a {type(model).__name__}; a compiled recording is of one stack")
        read = torch.cat([example(model.spec, 4)] * 2)
        self.model, self.dtype = model, read.dtype
        sizes = {"ids": (torch.export.Dim.AUTO,) * read.dim()}  # left open where the model takes others
        traced = torch.export.export(_Heard(model, names), (read,), dynamic_shapes=sizes, strict=False)
        self.graph = torch.compile(traced.module(), fullgraph=True, dynamic=True, backend=backend)

    def __call__(self, ids: Int[Tensor, "B T"]) -> tuple[Float[Tensor, "B T V"], Recording]:
        """Raises InputError for ids, or images, that do not fit the model."""
        self.model.embedding.ids(ids)
        out, taken = self.graph(ids.to(self.dtype))
        run = Recording()
        run.taken = {name: [x] for name, x in taken.items()}
        return out, run


class _Heard(nn.Module):
    """The model and what its taps give, as one function of ids."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        taken: dict[str, Tensor] = {}
        with listening(self.model, lambda name, x: taken.update({name: x}), *map(ours, self.names)):
            out = self.model(ids)
        check_answered(self.model, self.names, taken)
        return out, taken
