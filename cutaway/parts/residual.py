"""A stage: one or more branches read the stream and are summed into it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts.norms import normed
from cutaway.parts.slots import LayerCache
from cutaway.parts.step import Step
from cutaway.tap import tap


class Stage:
    """norm_sum(skip + sum of scale * norm_out(part(norm_in(h)))), h = norm(x) (He et al. 2015, arXiv:1512.03385).

    A plain object, no module: its parts belong to the block, each branch's norms (`norm_in`, `norm_out`) and learned
    `residual_scale` to its part, and the stage's own norms (`norm`, `norm_sum`) to the part of its first branch.
    """

    def __init__(self, record: spec.Stage, parts: list[nn.Module], dropout: float) -> None:
        self.parts, self.dropout = parts, dropout
        self.adds = isinstance(record.residual, spec.Add)
        self.from_normed = isinstance(record.residual, spec.Add) and record.residual.skip == "normed"
        self.scale = 1.0 if isinstance(record.scale, str) else record.scale

    @property
    def plain_sum(self) -> bool:
        """Whether the stream is x + the updates and nothing else: no norm of the sum, no other skip."""
        return self.adds and not self.from_normed and norm_of(self.parts[0], "norm_sum") is None

    def __call__(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        first = self.parts[0]
        h = normed(norm_of(first, "norm"), x)
        updates = [self._update(part, h, step, cache) for part in self.parts]
        total = (h if self.from_normed else x) if self.adds else updates.pop(0)
        for update in updates:
            total = total + update
        return normed(norm_of(first, "norm_sum"), total)

    def _update(self, part: nn.Module, h: Tensor, step: Step, cache: LayerCache | None) -> Tensor:
        inner = tap(part, "in", normed(norm_of(part, "norm_in"), h))
        update = normed(norm_of(part, "norm_out"), tap(part, "out", part(inner, step, cache)))
        learned = scale_of(part)
        if learned is not None:
            update = update * learned
        elif self.scale != 1.0:
            update = update * self.scale
        if self.dropout and part.training:
            update = F.dropout(update, self.dropout)
        return tap(part, "update", update)


def attach(part: nn.Module, scale: float | str, d_model: int, **norms: nn.Module | None) -> nn.Module:
    """Hang a branch's norms and learned scale on its part, so that their names read `blocks.3.attn.norm_in`."""
    for name, norm in norms.items():
        part.add_module(name, norm)
    shape = {"scalar": (1,), "channel": (d_model,)}.get(scale) if isinstance(scale, str) else None
    part.register_parameter("residual_scale", None if shape is None else nn.Parameter(torch.ones(shape)))
    return part


def norm_of(part: nn.Module, name: str) -> nn.Module | None:
    """The norm that hangs on a part under a name; a part that begins no stage has no `norm` and `norm_sum`."""
    return part._modules[name]


def scale_of(part: nn.Module) -> Tensor | None:
    """The learned scale of a branch."""
    return part._parameters["residual_scale"]
