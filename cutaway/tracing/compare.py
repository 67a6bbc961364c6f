"""Where two models part ways: the same ids through both, tensor by tensor, in the order of the pass."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.models import EncoderDecoder, OneStack, Transformer
from cutaway.tap import listening
from cutaway.tracing.changes import alike
from cutaway.tracing.names import GLOSSARY, kind_of
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.tables import Table

Hear = Callable[[str, Tensor], None]
Source = Callable[[Prompt, Hear], None]
"""Reads a prompt and calls `hear` with each tensor under the name of our tap: `taps_of`, or a foreign model."""

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How far apart tensors of a type count as equal, as a share of the largest number: rounding of a deep model."""
INSIDE = ("scores", "pattern", "scale", "normed")
"""Taps that a fused kernel has not: whoever hears them gets the written-out form."""


def taps_of(model: Transformer, fused: bool = False) -> Source:
    """A model of ours; with `fused` its fused kernels stay, and the taps inside them are not heard."""
    names = [f"*{tap.name}" for tap in GLOSSARY if tap.name not in INSIDE] if fused else []

    def run(prompt: Prompt, hear: Hear) -> None:
        def keep(name: str, x: Tensor) -> None:
            if name.rpartition(".")[2] not in INSIDE or not fused:
                hear(name, x.detach())

        with torch.no_grad(), listening(model, keep, *names):
            prompt.run(model)

    return run


@dataclass(frozen=True)
class Difference:
    """The worst difference of one tensor, where it is, and the largest number of the first model's tensor.

    `shapes` tell two shapes that cannot be compared. The difference is infinite there, and where one of two numbers is
    NaN or infinite.
    """

    name: str
    worst: float
    largest: float
    where: tuple[int, ...] = ()
    shapes: str = ""

    @property
    def relative(self) -> float:
        return 0.0 if self.worst == 0 else self.worst / self.largest if self.largest else math.inf


@dataclass(frozen=True)
class Comparison:
    """All tensors that both models have, in the order of the pass; `tolerance` is a share of a tensor's largest number.

    `only`: how many tensors the first and the second have alone.
    """

    differences: tuple[Difference, ...]
    tolerance: float
    only: tuple[int, int] = (0, 0)

    @property
    def first(self) -> Difference | None:
        """The first tensor that is further apart than the tolerance."""
        return next((each for each in self.differences if each.relative > self.tolerance), None)

    @property
    def identical(self) -> bool:
        return not any(each.worst for each in self.differences)

    def __str__(self) -> str:
        n = len(self.differences)
        alone = [f"{k} more of the {side} alone" for k, side in zip(self.only, ("first", "second"), strict=True) if k]
        told = f"{n} tensors" + (f", {', '.join(alone)}" if alone else "")
        if n == 0:
            return f"nothing to compare: {told}"
        if self.identical:
            return f"equal bit for bit: {told}"
        start = next(each for each in self.differences if each.worst)
        if (first := self.first) is None:
            worst = max(self.differences, key=lambda each: each.relative)
            return (
                f"equal within {self.tolerance:.0e}: {told}; the first that differs at all is {start.name}, the worst "
                f"{worst.name} by {worst.relative:.1e} of its largest number"
            )
        by = first.shapes or (
            f"{first.worst:.3g} at [{', '.join(map(str, first.where))}], {first.relative:.1e} of its largest number"
        )
        return f"they part ways at {first.name}: {by}; the first that differs at all is {start.name}; {told}"

    def table(self, each: bool = False) -> Table:
        """The worst of each kind of tap over all layers, or with `each` every tensor, in the order of the pass."""
        kinds: dict[str, list[Difference]] = {}
        for found in self.differences:
            kinds.setdefault(found.name if each else kind_of(found.name), []).append(found)
        rows = []
        for kind, found in kinds.items():
            worst = max(found, key=lambda one: one.relative)
            n_far = sum(one.relative > self.tolerance for one in found)
            at = "" if each else ".".join(re.findall(r"(?:blocks|experts)\.(\d+)", worst.name))
            rows.append((kind, at, worst.relative, worst.worst, worst.largest, n_far))
        columns = ("tap", "in layer", "relative", "worst", "largest", "far")
        note = f"relative: worst over largest number; far: tensors that are beyond {self.tolerance:.0e}"
        return Table("Worst differences", columns, rows, note, (2,), "bars")


def compare(
    first: Transformer | Source, second: Transformer | Source, prompt: Prompt, tolerance: float | None = None
) -> Comparison:
    """The first tensor in which two models, two types, two kernels or two programs differ, and by how much each does.

    The first's tensors are kept, the second's compared as they come. Without a tolerance it is that of the coarsest
    type heard (`TOLERANCES`).

    >>> import copy, torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> other = copy.deepcopy(model)
    >>> other.blocks[1].attn.k_proj.weight.data[0, 0] += 1
    >>> compare(model, other, Prompt(torch.tensor([[1, 2, 3]]))).first.name
    'blocks.1.attn.k'
    """
    sides = [taps_of(side) if isinstance(side, (OneStack, EncoderDecoder)) else side for side in (first, second)]
    kept: dict[str, Tensor] = {}
    sides[0](prompt, kept.__setitem__)
    found: dict[str, Difference] = {}
    coarse, extra = [x.dtype for x in kept.values()], set[str]()

    def hear(name: str, x: Tensor) -> None:
        coarse.append(x.dtype)
        if name in kept:
            found[name] = difference(name, kept[name], x)
        else:
            extra.add(name)

    sides[1](prompt, hear)
    if tolerance is None:
        tolerance = max(TOLERANCES.get(dtype, 0.0) for dtype in coarse)
    ordered = tuple(found[name] for name in kept if name in found)
    return Comparison(ordered, tolerance, (len(kept) - len(ordered), len(extra)))


def difference(name: str, a: Tensor, b: Tensor) -> Difference:
    """The worst of |a - b|, in float64; two equal infinities or two NaN are no difference."""
    if a.shape != b.shape:
        return Difference(name, math.inf, 0.0, (), f"{tuple(a.shape)} and {tuple(b.shape)}")
    if not a.numel():
        return Difference(name, 0.0, 0.0)
    a, b = a.double(), b.double()
    apart = torch.where(alike(a, b), 0.0, (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf))
    where = torch.unravel_index(apart.argmax(), apart.shape)
    finite = a[a.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return Difference(name, float(apart.max()), largest, tuple(int(i) for i in where))
