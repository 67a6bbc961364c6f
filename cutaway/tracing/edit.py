"""Change what passes the taps while a model runs, and say by how much it was changed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import Stack
from cutaway.parts.moe import Router
from cutaway.tap import check_model, listening, matcher
from cutaway.tracing.changes import Change, Report, alike
from cutaway.tracing.names import describe, missing, ours
from cutaway.tracing.record import Recording
from cutaway.tracing.sites import WHOLE, Part, Site, among, numbers
from cutaway.tracing.stacks import owner_of

Edit = Callable[[Tensor, Site], Tensor | None]
"""What takes a tensor's place; None: it was only looked at."""


def zero(part: Part = WHOLE) -> Edit:
    """0 in place of the part."""
    return lambda x, site: torch.where(part.mask(x, site), 0.0, x)


def mean(part: Part = WHOLE, run: Recording | None = None) -> Edit:
    """The mean over rows and tokens, padding too, of this step or of a recording of the tap, in place of the part."""

    def edit(x: Tensor, site: Site) -> Tensor:
        known = x if run is None else run[site.name].to(x)
        axes = [i for i, letter in enumerate(site.axes) if letter in ("B", "T", "M")]
        return torch.where(part.mask(x, site), known.mean(axes, keepdim=True), x)

    return edit


def scale(factor: float, part: Part = WHOLE) -> Edit:
    """The part times a factor."""
    return lambda x, site: torch.where(part.mask(x, site), x * factor, x)


def add(vector: Tensor, factor: float = 1.0, part: Part = WHOLE) -> Edit:
    """factor * vector added (steering), broadcast to the tensor. Raises InputError where it does not fit."""
    vector = torch.as_tensor(vector)

    def edit(x: Tensor, site: Site) -> Tensor:
        pairs = zip(reversed(vector.shape), reversed(x.shape))
        if vector.dim() > x.dim() or any(mine not in (1, theirs) for mine, theirs in pairs):
            raise InputError(f"add: a vector of {tuple(vector.shape)} does not fit {site.name}, {tuple(x.shape)}")
        return torch.where(part.mask(x, site), x + factor * vector.to(x), x)

    return edit


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


def hide(tokens: Sequence[int]) -> Edit:
    """-inf in the scores of these keys: no query sees them, so the other weights grow to 1 (a query that sees none: 0).

    Of a tap `scores`; keys are counted from the first token of a row's prompt. Raises InputError where that is not
    their column: behind padding, and in a ring.
    """

    def edit(x: Tensor, site: Site) -> Tensor:
        if site.axes[-1:] != ("S",) or not site.name.endswith("scores"):
            raise InputError(f"hide: {site.name} [{' '.join(site.axes)}] has no scores of keys; choose `scores`")
        _check_columns(x, site)
        there = [token for token in numbers("tokens", tokens, site) if -x.shape[-1] <= token < x.shape[-1]]
        return x.index_fill(-1, torch.tensor(there, dtype=torch.long, device=x.device), -torch.inf)

    return edit


def _check_columns(x: Tensor, site: Site) -> None:
    """Raise InputError unless column i of the keys is token i of every row."""
    at = site.positions
    if at is None:
        return
    padded = at.shape[1] > 1 and bool((at[:, 1] == 0).any())
    if padded or (".cross." not in site.name and bool((at[:, 0] != x.shape[-1] - at.shape[1]).any())):
        raise InputError(
            f"hide: {site.name}: a token's number is not its column (padding before a row, or a ring); give rows of "
            "equal length, or one at a time, with a growing cache"
        )


def exclude(experts: Sequence[int]) -> Edit:
    """-inf in what experts are chosen by: they are never routed to, the others weigh as the router does.

    Of a tap `router.ranked`. Raises InputError where too few are left to choose from.
    """

    def edit(x: Tensor, site: Site) -> Tensor:
        if not isinstance(site.module, Router) or not site.name.endswith("ranked"):
            raise InputError(f"exclude: {site.name} ranks no experts; choose `router.ranked`")
        out = torch.tensor(among("experts", experts, x.shape[-1], site), dtype=torch.long, device=x.device)
        x = x.index_fill(-1, out, -torch.inf)
        check_experts(site.name, x[0], site.module.rule, site.module.n_active)
        return x

    return edit


def check_experts(name: str, ranked: Float[Tensor, " E"], router: spec.Router, n_active: int) -> None:
    """Raise InputError where too few experts are not at -inf, in the groups where fewest are left."""
    left = (ranked != -torch.inf).view(router.n_groups, -1).sum(1).sort().values
    if (fewest := int(left[: router.n_active_groups].sum())) < n_active:
        raise InputError(f"{name}: {fewest} experts may be left to choose {n_active} from; leave more in")


def knock_out(
    heads: Sequence[tuple[int, int]] = (), neurons: Sequence[tuple[int, int]] = (),
    experts: Sequence[tuple[int, int]] = (), layers: Sequence[int] = (), tokens: Sequence[int] = (), side: str = "",
) -> dict[str, Edit]:  # fmt: skip
    """Edits that take parts out while they last: what `remove` leaves, without another model.

    Heads (layer, head) and neurons (layer, neuron) give 0, experts (layer, expert) are never chosen, x passes a layer,
    and no query of a self-attention sees the tokens (`hide`). `side`: `encoder` or `decoder` of a model of two stacks.
    """
    at = f"{side}.blocks" if side else "blocks"
    edits: dict[str, Edit] = {}
    for layer, which in _by_layer(heads).items():
        edits[f"{at}.{layer}.attn.z"] = zero(Part(heads=which))
    for layer, which in _by_layer(neurons).items():
        edits[f"{at}.{layer}.ffn.hidden"] = zero(Part(neurons=which))
    for layer, which in _by_layer(experts).items():
        edits[f"{at}.{layer}.ffn.router.ranked"] = exclude(which)
    for layer in layers:
        before = Seen()
        edits[f"{at}.{layer}.resid_pre"] = before.look
        edits[f"{at}.{layer}.resid_post"] = before.give(f"{at}.{layer}.resid_pre")
    return edits | ({f"{at}.*.attn.scores": hide(tokens)} if tokens else {})


class Seen:
    """Tensors of this pass that a later edit of it needs: `look` is the edit that keeps them by name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def look(self, x: Tensor, site: Site) -> None:
        self.tensors[site.name] = x

    def give(self, name: str) -> Edit:
        """What passed the tap of this name."""
        return lambda x, site: self.tensors[name]


def _by_layer(pairs: Sequence[tuple[int, int]]) -> dict[int, list[int]]:
    out: dict[int, list[int]] = {}
    for layer, index in pairs:
        out.setdefault(layer, []).append(index)
    return out


@contextmanager
def edit(model: nn.Module, edits: Mapping[str, Edit | Callable[[Tensor], Tensor]]) -> Iterator[Report]:
    """Apply edits at the taps that match while it lasts, each to what the one before made of the tensor.

    `edits`: tap name or pattern to an edit of this module, or to any function of the tensor, which may write into it.
    Nested, the inner one sees what the outer one left. A shape or type may not change. At its end a warning names an
    edit that changed nothing.

    Raises InputError for a name that nothing answered to although the model ran, for a changed shape, and within
    activation checkpointing, where a forward runs twice.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> with edit(model, {"blocks.1.attn.z": zero(Part(heads=[2]))}) as report:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> report.changes["blocks.1.attn.z"].calls
    1
    """
    check_model(model)
    if not isinstance(edits, Mapping):
        raise InputError(f"edit: a {type(edits).__name__}; give a mapping of names to edits")
    paths = [path for path, _ in model.named_modules(remove_duplicate=False)]
    positions = {f"{path}.positions".lstrip(".") for path, each in model.named_modules() if isinstance(each, Stack)}
    planned = [(asked, matcher([ours(asked)], paths), _as_edit(asked, each)) for asked, each in edits.items()]
    if seen := positions & edits.keys():
        raise InputError(
            f"edit: {min(seen)} can be seen, not changed; edit what is made of them: position, q_rot, k_rot"
        )
    report, steps, places = Report(), dict[str, int](), dict[str, Tensor]()
    fired, changed, ran = set[str](), set[str](), list[str]()

    def hear(name: str, x: Tensor) -> Tensor:
        if name in positions:
            ran.append(name)
            places[name.removesuffix("positions")] = x
            return x
        _refuse_checkpointing(name)
        stack = name.partition("blocks.")[0]
        at = places.get(stack.replace("decoder.", "encoder.") if ".cross." in name else stack)
        site = Site(name, steps.get(name, 0), describe(name).axes_of(x.dim()), owner_of(model, name)[0], at)
        steps[name] = site.step + 1
        new, touched = x, False
        for asked, test, change in planned:
            if not test(name):
                continue
            fired.add(asked)
            made = _made(change, new, site)
            if made is None:
                changed.add(asked)  # it only looked
                continue
            _check_made(made, x, asked, name)
            if not alike(made, new).all():
                changed.add(asked)
            report.edits.setdefault(asked, Change()).count(new, made)
            new, touched = made, True
        if touched:
            report.changes.setdefault(name, Change()).count(x, new)
        return new

    with listening(model, hear, *[ours(asked) for asked in edits], *positions):
        yield report
    silent = "; ".join(missing(asked, paths) for asked in sorted(set(edits) - fired))
    if silent and ran:
        raise InputError(f"edit: {silent}")
    if silent and not positions:  # of a part of a model nobody knows whether it ran
        warnings.warn(f"edit: {silent}", stacklevel=3)
    for asked in fired - changed:
        warnings.warn(f"edit: {asked} changed nothing", stacklevel=3)


def _made(change: Edit, x: Tensor, site: Site) -> Tensor | None:
    """What an edit returns, else what it wrote into the tensor; None where it only looked."""
    given = x.clone()  # what is written into it goes nowhere else: a tensor may have several taps
    made = change(given, site)
    if made is not None and made is not given:
        return made
    if alike(given, x).all():
        return None if made is None else x  # the tensor itself, whose layout a copy may not have
    return given


def _check_made(made: object, x: Tensor, asked: str, name: str) -> None:
    if not isinstance(made, Tensor):
        raise InputError(f"edit: {asked} made a {type(made).__name__} of {name}; return a tensor, or None")
    if made.shape != x.shape or made.dtype != x.dtype:
        got, had = f"{tuple(made.shape)} {made.dtype}", f"{tuple(x.shape)} {x.dtype}"
        raise InputError(f"edit: {asked} made {got} of {name}, which is {had}; keep both")
    if made.device != x.device:
        raise InputError(f"edit: {asked} moved {name} from {x.device} to {made.device}; give it back there")


def _as_edit(asked: str, given: Any) -> Edit:
    """What takes a tensor and its site, as it is; a function of the tensor alone (defaults do not count), wrapped."""
    if not callable(given):
        raise InputError(f"edit: {asked}: a {type(given).__name__} is no edit; give a function of the tensor")
    try:
        parameters = inspect.signature(given.forward if isinstance(given, nn.Module) else given).parameters.values()
    except ValueError:  # built in
        parameters = []
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if sum(each.default is each.empty and each.kind in by_place for each in parameters) >= 2:
        return given
    return lambda x, site: given(x)


def _refuse_checkpointing(name: str) -> None:
    if torch._C._current_autograd_node() is not None:
        raise InputError(f"edit: {name} is computed again in the backward pass; edit without activation checkpointing")
