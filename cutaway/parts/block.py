"""One layer of the model: its stages in order."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import InputError
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
        ffn = parts.get("ffn")
        looks = [i for i, stage in enumerate(stages) if any(part is not ffn for part in stage.parts)]
        self.n_looking = 1 + max(looks, default=-1)  # the stages after these take each token alone

    def __setattr__(self, name: str, value: Any) -> None:
        self._keep(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._keep(name)
        super().__delattr__(name)

    def add_module(self, name: str, module: nn.Module | None) -> None:
        self._keep(name)
        super().add_module(name, module)

    def _keep(self, name: str) -> None:
        """Raise InputError for the name of a part: the stages would still call the part that was there."""
        if name in self.__dict__.get("_modules", ()):
            raise InputError(
                f"block.{name}: a part carries the norms of its stage, so nothing can take its place; replace a module "
                "inside it, hook or `edit` it, `remove` it, or build a model of another spec"
            )

    def forward(
        self, x: Float[Tensor, "B T D"], step: Step, cache: LayerCache | None, rows: slice | None = None
    ) -> Float[Tensor, "B T D"]:
        """`rows`: of those alone what takes each token alone is computed, and given back."""
        x = tap(self, "resid_pre", x)
        for index, stage in enumerate(self.stages):
            if rows is not None and index == self.n_looking:
                x, step, rows = x[:, rows], step.only(rows), None
            x = tap(self, f"resid.{index}", stage(x, step, cache))
            if index == 0 and len(self.stages) == 2:
                x = tap(self, "resid_mid", x)
        return tap(self, "resid_post", x if rows is None else x[:, rows])
