"""Change what passes the taps while a model runs, and say by how much it was changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.tap import listening, matcher
from cutaway.tracing.names import describe, ours
from cutaway.tracing.record import Recording

Indices = Sequence[int] | slice | None


class Site(NamedTuple):
    """Where an edit is applied: the tap, which of its calls this is (0 is the first forward), and the axes there."""

    name: str
    step: int
    axes: tuple[str, ...]


Edit = Callable[[Tensor, Site], Tensor]


@dataclass(frozen=True)
class Part:
    """Which part of a tensor an edit touches: heads, neurons (or any last-axis entries), tokens and rows; None is all.

    `tokens` are columns of the step, as in a list: -1 is the last. In a decoded step there is one.
    """

    heads: Indices = None
    neurons: Indices = None
    tokens: Indices = None
    rows: Indices = None

    def mask(self, x: Tensor, site: Site) -> Tensor:
        """True where the part is, broadcasting to x. Raises InputError for an axis that x does not have."""
        chosen = torch.ones((), dtype=torch.bool, device=x.device)
        wanted = (("heads", self.heads, ("N", "K")), ("neurons", self.neurons, "last"), ("tokens", self.tokens, ("T",)),
                  ("rows", self.rows, ("B",)))  # fmt: skip
        for what, indices, letters in wanted:
            if indices is None:
                continue
            axis = (
                x.dim() - 1 if letters == "last" else next((i for i, a in enumerate(site.axes) if a in letters), None)
            )
            if axis is None:
                raise InputError(f"edit: {site.name} [{' '.join(site.axes)}] has no {what}; choose another tap")
            one = torch.zeros(x.shape[axis], dtype=torch.bool, device=x.device)
            try:
                one[indices if isinstance(indices, slice) else list(indices)] = True
            except IndexError:
                raise InputError(
                    f"edit: {site.name} has {x.shape[axis]} {what}, not {max(indices)}; count from 0"
                ) from None
            chosen = chosen & one.view([-1 if i == axis else 1 for i in range(x.dim())])
        return chosen


WHOLE = Part()


def zero(part: Part = WHOLE) -> Edit:
    """0 in place of the part."""
    return lambda x, site: torch.where(part.mask(x, site), 0.0, x)


def mean(part: Part = WHOLE, run: Recording | None = None) -> Edit:
    """The mean over rows and tokens, of this step or of a recording of the tap, in place of the part."""

    def edit(x: Tensor, site: Site) -> Tensor:
        known = x if run is None else run[site.name].to(x)
        axes = [i for i, letter in enumerate(site.axes) if letter in ("B", "T", "M")]
        return torch.where(part.mask(x, site), known.mean(axes, keepdim=True), x)

    return edit


def scale(factor: float, part: Part = WHOLE) -> Edit:
    """The part times a factor."""
    return lambda x, site: torch.where(part.mask(x, site), x * factor, x)


def add(vector: Tensor, factor: float = 1.0, part: Part = WHOLE) -> Edit:
    """factor * vector added (steering); the vector broadcasts to the tensor."""
    return lambda x, site: torch.where(part.mask(x, site), x + factor * vector.to(x), x)


def patch(run: Recording, part: Part = WHOLE) -> Edit:
    """What a recording of the same tap holds, step by step, in place of the part: from another text, or frozen.

    Raises InputError where the recording has another shape or fewer steps.
    """

    def edit(x: Tensor, site: Site) -> Tensor:
        steps = run.steps(site.name)
        if site.step >= len(steps) or steps[site.step].shape != x.shape:
            kept = [tuple(step.shape) for step in steps]
            raise InputError(f"patch: {site.name} is {tuple(x.shape)} in step {site.step}, the recording holds {kept}")
        return torch.where(part.mask(x, site), steps[site.step].to(x), x)

    return edit


def resample(run: Recording, seed: int = 0, part: Part = WHOLE) -> Edit:
    """What a recording held at the tap for some row and token, drawn anew for each row and token of x."""

    def edit(x: Tensor, site: Site) -> Tensor:
        pool = run[site.name].to(x)
        at = {letter: i for i, letter in enumerate(site.axes)}
        if not {"B", "T"} <= at.keys() or "S" in at:
            raise InputError(
                f"resample: {site.name} [{' '.join(site.axes)}] is not a vector a token; choose another tap"
            )
        flat = pool.movedim((at["B"], at["T"]), (0, 1)).flatten(0, 1)
        generator = torch.Generator().manual_seed(seed + site.step)
        drawn = torch.randint(len(flat), (x.shape[at["B"]], x.shape[at["T"]]), generator=generator)
        other = flat[drawn.to(flat.device)].movedim((0, 1), (at["B"], at["T"]))
        return torch.where(part.mask(x, site), other, x)

    return edit


def knock_out(heads: Sequence[tuple[int, int]] = (), neurons: Sequence[tuple[int, int]] = (),
              layers: Sequence[int] = ()) -> dict[str, Edit]:  # fmt: skip
    """Edits that set the outputs of heads (layer, head), neurons (layer, neuron) and whole layers' branches to 0."""
    edits: dict[str, Edit] = {}
    for layer in {layer for layer, _ in heads}:
        edits[f"blocks.{layer}.attn.z"] = zero(Part(heads=[head for at, head in heads if at == layer]))
    for layer in {layer for layer, _ in neurons}:
        edits[f"blocks.{layer}.ffn.hidden"] = zero(Part(neurons=[neuron for at, neuron in neurons if at == layer]))
    return edits | {f"blocks.{layer}.*.update": zero() for layer in layers}


@dataclass
class Change:
    """What edits did at one tap: calls, and the Euclidean norms of the difference and of the tensor, over all calls."""

    calls: int = 0
    difference: float = 0.0
    before: float = 0.0

    def count(self, old: Tensor, new: Tensor) -> None:
        wide = torch.float64 if old.dtype == torch.float64 else torch.float32
        self.calls += 1
        old = old.detach().to(wide).nan_to_num(neginf=0.0)
        new = new.detach().to(wide).nan_to_num(neginf=0.0)
        self.difference = (self.difference**2 + float((new - old).norm()) ** 2) ** 0.5
        self.before = (self.before**2 + float(old.norm()) ** 2) ** 0.5


@dataclass
class Report:
    """What each edit changed, by tap."""

    changes: dict[str, Change] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = [
            f"{name}: {c.calls} calls, changed by {c.difference:.3g} of {c.before:.3g}"
            for name, c in self.changes.items()
        ]
        return "\n".join(rows) or "nothing was edited"


@contextmanager
def edit(model: nn.Module, edits: Mapping[str, Edit | Callable[[Tensor], Tensor]]) -> Iterator[Report]:
    """Apply edits at the taps that match while it lasts, each to what the one before made of the tensor.

    `edits`: tap name or pattern to an edit of this module, or to any function of the tensor. Nested, the inner one sees
    what the outer one left. A shape or type may not change. At its end a warning names an edit that changed nothing.

    Raises InputError for a name that nothing answered to although the model ran, for a changed shape, and within
    activation checkpointing, where a forward runs twice.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> with edit(model, {"blocks.1.attn.z": zero(Part(heads=[2]))}) as report:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> report.changes["blocks.1.attn.z"].calls
    1
    """
    paths = [path for path, _ in model.named_modules()]
    planned = [(asked, matcher([ours(asked)], paths), _as_edit(each)) for asked, each in edits.items()]
    report, steps = Report(), dict[str, int]()
    fired, changed, ran = set[str](), set[str](), list[str]()

    def hear(name: str, x: Tensor) -> Tensor:
        if name.endswith("positions"):
            ran.append(name)
            return x
        _refuse_checkpointing(name)
        site = Site(name, steps.get(name, 0), describe(name).axes)
        steps[name] = site.step + 1
        new = x
        for asked, test, change in planned:
            if test(name):
                old, new = new, change(new, site)
                if new.shape != x.shape or new.dtype != x.dtype:
                    got, had = f"{tuple(new.shape)} {new.dtype}", f"{tuple(x.shape)} {x.dtype}"
                    raise InputError(f"edit: {asked} made {got} of {name}, which is {had}; keep both")
                fired.add(asked)
                if new is not old and not torch.equal(new, old):
                    changed.add(asked)
        report.changes.setdefault(name, Change()).count(x, new)
        return new

    with listening(model, hear, *[ours(asked) for asked in edits], "*positions"):
        yield report
    if ran and (silent := set(edits) - fired):
        raise InputError(
            f"edit: {', '.join(sorted(silent))}: no tap of the model has that name; `cutaway taps` lists them"
        )
    for asked in fired - changed:
        warnings.warn(f"edit: {asked} changed nothing", stacklevel=3)


def _as_edit(given: Edit | Callable[[Tensor], Tensor]) -> Edit:
    code = getattr(given, "__code__", None)
    if code is not None and code.co_argcount == 2:
        return given
    return lambda x, site: given(x)


def _refuse_checkpointing(name: str) -> None:
    if torch._C._current_autograd_node() is not None:
        raise InputError(f"edit: {name} is computed again in the backward pass; edit without activation checkpointing")
