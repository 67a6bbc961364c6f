"""What becomes of the numbers on their way through a model: NaN and infinities, ranges, and the error of rounding."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.models import Transformer
from cutaway.tap import listening
from cutaway.tracing.names import kind_of
from cutaway.tracing.prompt import Prompt
from cutaway.tracing.tables import Table


@dataclass
class Range:
    """The numbers of one tensor, over all calls of its tap.

    A score of -inf in every head is one that the mask hides: it is left out. `where`: the index of the first number
    that is NaN or infinite, in the first call that has one.
    """

    name: str
    dtype: torch.dtype
    n: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    n_zero: int = 0
    n_subnormal: int = 0
    n_wrong: int = 0
    where: tuple[int, ...] = ()

    def count(self, x: Tensor) -> None:
        finite = x.isfinite()
        wrong = ~finite
        if self.name.endswith(".scores"):
            wrong &= ~(x == -torch.inf).all(1, keepdim=True)
        numbers = x[finite]
        sizes = numbers.abs()
        self.n += sizes.numel() + int(wrong.sum())
        self.n_wrong += int(wrong.sum())
        if self.n_wrong and not self.where:
            self.where = tuple(int(i) for i in wrong.nonzero()[0])
        if sizes.numel():
            low, high = numbers.aminmax()
            self.low, self.high = min(self.low, float(low)), max(self.high, float(high))
            self.total += float(sizes.sum(dtype=torch.float64))
            self.n_zero += int((sizes == 0).sum())
            self.n_subnormal += int(((sizes > 0) & (sizes < torch.finfo(x.dtype).tiny)).sum())

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high)) if self.low <= self.high else math.inf

    @property
    def headroom(self) -> float:
        """How many times the largest number fits below the largest of its type."""
        return torch.finfo(self.dtype).max / self.largest if self.largest else math.inf


@dataclass
class Numerics:
    """What `watch` saw: `ranges` by tap in the order of the pass, `weights` that hold a NaN or an infinity."""

    weights: tuple[str, ...] = ()
    ranges: dict[str, Range] = field(default_factory=dict)

    @property
    def first(self) -> Range | None:
        """The first tensor of the pass with a NaN or an infinity."""
        return next((each for each in self.ranges.values() if each.n_wrong), None)

    def __str__(self) -> str:
        if (first := self.first) is None:
            said = f"no NaN and no infinity in {len(self.ranges)} tensors"
        else:
            number, at = list(self.ranges).index(first.name) + 1, ", ".join(map(str, first.where))
            said = (
                f"{first.name} is the first tensor with a NaN or an infinity: number {number} of {len(self.ranges)} in "
                f"the pass, {first.n_wrong} of {first.n} numbers, the first at [{at}]"
            )
        return said + (f"; weights that hold one: {', '.join(self.weights)}" if self.weights else "")

    def table(self, each: bool = False) -> Table:
        """A row a kind of tap over all layers, or with `each` a row a tensor; sorted as the pass goes.

        `% tiny`: subnormal numbers, nearer to 0 than full precision reaches. `headroom`: how many times the largest
        number fits into its type.
        """
        kinds: dict[str, list[Range]] = {}
        for name, found in self.ranges.items():
            kinds.setdefault(name if each else kind_of(name), []).append(found)
        rows = []
        for name, found in kinds.items():
            n = sum(one.n for one in found) or 1
            low, high = min(one.low for one in found), max(one.high for one in found)
            zero, tiny = sum(one.n_zero for one in found) / n, sum(one.n_subnormal for one in found) / n
            mean, room = sum(one.total for one in found) / n, min(one.headroom for one in found)
            rows.append((name, low, high, mean, round(100 * zero, 2), round(100 * tiny, 2), room))
        columns = ("tap", "low", "high", "mean size", "% zero", "% tiny", "headroom")
        return Table("Ranges", columns, rows, _ABOUT)


_ABOUT = "headroom: how many times the largest number fits into its type; tiny: subnormal"


@contextmanager
def watch(model: nn.Module) -> Iterator[Numerics]:
    """The ranges of all tensors of a model while it runs: one forward, a batch or a generation. Nothing is kept.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> model.blocks[1].ffn.up_proj.weight.data[3, 0] = torch.nan
    >>> with watch(model) as found:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> found.first.name, found.first.where, found.weights
    ('blocks.1.ffn.hidden', (0, 0, 3), ('blocks.1.ffn.up_proj.weight',))
    """
    found = Numerics(tuple(name for name, weight in model.named_parameters() if not bool(weight.isfinite().all())))

    def hear(name: str, x: Tensor) -> None:
        if x.is_floating_point():
            found.ranges.setdefault(name, Range(name, x.dtype)).count(x.detach())

    with listening(model, hear):
        yield found


Variant = Callable[[Transformer], Transformer]
"""Makes of a model another with the same taps: its weights rounded, packed, or in any other way nearly the same."""


def cast(dtype: torch.dtype) -> Variant:
    """A copy of the model that computes in another type."""
    return lambda model: copy.deepcopy(model).to(dtype)


ROUNDED: dict[str, Variant] = {
    "float32": cast(torch.float32), "float16": cast(torch.float16), "bfloat16": cast(torch.bfloat16),
}  # fmt: skip


@dataclass(frozen=True)
class Errors:
    """Relative errors [L] of each variant after the embedding, each block, the final norm and the head (`depths`).

    The error of a token's vector is |x - exact| / |exact|, here its mean over tokens; `alone` [L] is that of each block
    that reads the exact stream. `same`: the share of tokens for which the largest output is the same.
    """

    depths: tuple[str, ...]
    whole: dict[str, Float[Tensor, " L"]]
    alone: dict[str, Float[Tensor, " L"]]
    same: dict[str, float]

    def tables(self) -> list[Table]:
        """The errors that add up with depth, and those that each block adds."""
        said = "the same largest output: " + ", ".join(f"{label} {100 * x:.0f}%" for label, x in self.same.items())
        return [
            self._table("Relative error against float64", self.whole, said),
            self._table("Relative error of each block alone, given the exact stream", self.alone, ""),
        ]

    def _table(self, title: str, errors: dict[str, Tensor], note: str) -> Table:
        rows = [
            (depth, *(float(each[i]) for each in errors.values()))
            for i, depth in enumerate(self.depths) if not all(bool(each[i].isnan()) for each in errors.values())
        ]  # fmt: skip
        return Table(title, ("after", *errors), rows, note, tuple(range(1, len(errors) + 1)), "lines")


def errors(model: Transformer, prompt: Prompt, variants: Mapping[str, Variant] = ROUNDED) -> Errors:
    """How far variants of a model are from what it computes in float64 with the same weights.

    A variant is made, measured twice and dropped before the next: with its own stream, and with the exact one before
    each block. A variant that overflows has errors of NaN or infinity from there on.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> found = errors(model, Prompt(torch.tensor([[1, 2, 3]])))
    >>> bool(found.whole["float32"].max() < 1e-5 < found.whole["bfloat16"].max() < 0.1)
    True
    """
    exact = _states(cast(torch.float64)(model), prompt)
    depths = [name for name in exact if not name.endswith("resid_pre")]
    whole, alone, same = {}, {}, {}
    for label, make in variants.items():
        other = make(model)
        found, given = _states(other, prompt), _states(other, prompt, exact)
        whole[label] = torch.tensor([_apart(found[name], exact[name]) for name in depths])
        alone[label] = torch.tensor(
            [_apart(given[name], exact[name]) if "resid_post" in name else math.nan for name in depths]
        )
        best = [x[depths[-1]].argmax(-1) for x in (found, exact)]
        same[label] = float((best[0] == best[1]).double().mean())
    shown = (name.removesuffix(".resid_post") for name in depths)
    return Errors(tuple(shown), whole, alone, same)


def _states(model: Transformer, prompt: Prompt, exact: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The streams in float64, in the order of the pass; with `exact` each block reads that one."""
    kept: dict[str, Tensor] = {}

    def hear(name: str, x: Tensor) -> Tensor | None:
        kept[name] = x.detach().double()
        return exact[name].to(x) if exact is not None and name.endswith("resid_pre") else None

    with torch.no_grad(), listening(model, hear, "*embedded", "*blocks.*.resid_pre", "*blocks.*.resid_post", "*final"):
        kept["head"] = prompt.run(model).double()
    return kept


def _apart(x: Tensor, exact: Tensor) -> float:
    return float(((x - exact).norm(dim=-1) / exact.norm(dim=-1)).mean())
