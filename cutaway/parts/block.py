"""One layer of the model: its stages in order."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from cutaway.parts.residual import Stage
from cutaway.parts.slots import LayerCache
from cutaway.parts.step import Step
from cutaway.tap import tap


class Block(nn.Module):
    """x through each stage; the parts are children named attn, cross and ffn."""

    def __init__(self, parts: dict[str, nn.Module], stages: list[Stage]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.stages = stages

    def forward(self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None) -> Float[Tensor, "B T D"]:
        x = tap(self, "resid_pre", x)
        for index, stage in enumerate(self.stages):
            x = tap(self, f"resid.{index}", stage(x, step, cache))
            if index == 0 and len(self.stages) == 2:
                x = tap(self, "resid_mid", x)
        return tap(self, "resid_post", x)
