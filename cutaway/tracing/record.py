"""Keep what passes the taps: of one forward, of a batch, or of every step of a cached generation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.checkpoints.safetensors import SafetensorsFile
from cutaway.checkpoints.safetensors_write import outputs, write_file
from cutaway.errors import InputError
from cutaway.tap import check_model, listening, matcher, original
from cutaway.tracing.answered import check_answered, check_begun, patterns_of
from cutaway.tracing.names import describe, ours
from cutaway.tracing.tables import Table

_computed_again = torch._C._current_autograd_node
"""What backward is at, where activation checkpointing computes a tensor a second time; else None."""
META = "cutaway.recording"
POSITIONS = frozenset({"positions", "encoder.positions", "decoder.positions"})
"""Taps that every run of a model of one or of two stacks passes."""


@dataclass(frozen=True)
class Taken:
    """What becomes of a tensor as it is taken, so that memory stays bounded.

    `reduce` is applied first (`lambda x: x[:, -1:]`, `lambda x: x.norm(dim=-1)`), then it is moved and cast.
    `gradients`: the tensors stay part of the graph, and after `backward` their gradients are there too.
    """

    reduce: Callable[[Tensor], Tensor] | None = None
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None
    gradients: bool = False

    def __post_init__(self) -> None:
        if self.gradients and (self.reduce, self.device, self.dtype) != (None, None, None):
            raise InputError("record: with gradients tensors stay as they are; leave reduce, device and dtype away")

    def of(self, x: Tensor) -> Tensor:
        if self.gradients:
            if x.requires_grad:
                x.retain_grad()
            return x
        x = x.detach() if x.requires_grad else x
        if self.reduce is not None and not isinstance(x := self.reduce(x), Tensor):
            raise InputError(f"record: reduce made a {type(x).__name__} of a tensor; return a tensor")
        if self.device is not None or self.dtype is not None:
            x = x.to(device=self.device, dtype=self.dtype if x.is_floating_point() else None)
        return _apart(x)


WHOLE = Taken()


def _apart(x: Tensor) -> Tensor:
    """x, or a copy where it is a slice that would keep a tensor of more than twice its size alive."""
    return x.clone() if x.nbytes < x.untyped_storage().nbytes() // 2 else x


class Recording:
    """Tensors by tap; `run["blocks.3.resid_post"]` is the tensor of a forward, or of all steps one after the other.

    `steps(name)` keeps them apart. `positions` [B T]: of the columns. Names may be patterns or aliases wherever one
    tensor is meant.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> with cutaway.record(model, "blocks.*.resid_post") as run:
    ...     _ = cutaway.generate(model, [[1, 2, 3]], cutaway.spec.Generation(max_tokens=2))
    >>> [tuple(step.shape) for step in run.steps("blocks.0.resid_post")], tuple(run["blocks.0.resid_post"].shape)
    ([(1, 3, 64), (1, 1, 64)], (1, 4, 64))
    """

    def __init__(self, reduced: bool = False) -> None:
        self.taken: dict[str, list[Tensor]] = {}
        self.reduced = reduced

    @property
    def names(self) -> list[str]:
        """The taps recorded, in the order of the pass."""
        return [name for name in self.taken if name not in POSITIONS]

    @property
    def n_steps(self) -> int:
        return max((len(each) for each in self.taken.values()), default=0)

    @property
    def positions(self) -> Tensor:
        """Of the columns of `run[name]`; of an encoder-decoder those of the decoder."""
        return self["decoder.positions" if "decoder.positions" in self.taken else "positions"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._found(name))

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Each name with its tensor."""
        return ((name, self[name]) for name in self.names)

    def steps(self, name: str) -> list[Tensor]:
        """The tensor of each step. Raises InputError for a name that was not recorded."""
        found = self._found(name)
        if len(found) == 1:
            return self.taken[found[0]]
        near = get_close_matches(ours(name), self.names, n=1, cutoff=0.5)
        what = f"{len(found)} taps match it" if found else "it was not recorded"
        raise InputError(f"{name}: {what}; " + (f"did you mean {near[0]}?" if near else f"there are {self.names[:4]}"))

    def __getitem__(self, name: str) -> Tensor:
        """The steps as one tensor, joined along its token axis; keys that a step did not have count as hidden."""
        steps = self.steps(name)
        if len(steps) == 1:
            return steps[0]
        if self.reduced and not name.endswith("positions"):
            raise InputError(f"{name}: {len(steps)} steps, reduced as they were taken; read them by `steps`")
        axes = describe(self._found(name)[0]).axes_of(steps[0].dim())
        if len({len(step) for step in steps}) > 1 and axes[0] == "B":
            raise InputError(f"{name}: rows ended before others; read the steps by `steps`")
        if axes[-1] == "S":
            hidden = -torch.inf if axes == ("B", "N", "T", "S") and name.endswith("scores") else 0.0
            width = max(step.shape[-1] for step in steps)
            steps = [F.pad(step, (0, width - step.shape[-1]), value=hidden) for step in steps]
        axis = next((i for i, letter in enumerate(axes) if letter in ("T", "M")), None)
        if axis is not None and self._grow(name, [step.shape[axis] for step in steps]):
            return steps[-1]
        return torch.stack(steps) if axis is None else torch.cat(steps, axis)

    def _grow(self, name: str, lengths: list[int]) -> bool:
        """Whether each step has all tokens so far, not its own alone: latent attention rebuilds its keys and values."""
        columns = self.taken.get(f"{self._found(name)[0].partition('blocks.')[0]}positions", [])
        return len(lengths) > 1 and lengths == list(accumulate(step.shape[1] for step in columns))

    def table(self) -> Table:
        """What was recorded: each name with its axes, the shape of each step, type and size in memory."""
        rows = []
        for name in self.names:
            steps = self.taken[name]
            shapes = [" × ".join(map(str, step.shape)) for step in steps]
            told = shapes[0] if len(set(shapes)) == 1 else f"{shapes[0]} to {shapes[-1]}"
            letters = "reduced" if self.reduced else describe(name).letters
            dtype = str(steps[0].dtype).removeprefix("torch.")
            rows.append((name, letters, told, len(steps), dtype, sum(step.nbytes for step in steps)))
        size = sum(row[-1] for row in rows)
        columns = ("tap", "axes", "shape", "steps", "type", "bytes")
        return Table("Recording", columns, rows, f"{len(rows)} taps, {size:,} bytes")

    def __repr__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def gradient(self, name: str) -> Tensor:
        """d loss / d tensor after `backward`; raises InputError where there is none."""
        (x,) = self.steps(name)
        if x.grad is None:
            raise InputError(
                f"{name}: no gradient; record with Taken(gradients=True) and call backward on a loss of it"
            )
        return x.grad

    def save(self, path: str | Path) -> None:
        """Write all steps as safetensors, each tensor under its name (`name/step` where there are several)."""
        table = {
            name if len(steps) == 1 else f"{name}/{i}": x.contiguous()
            for name, steps in self.taken.items()
            for i, x in enumerate(steps)
        }
        tensors, shared = outputs(table)
        about = json.dumps({"steps": {name: len(steps) for name, steps in self.taken.items()}, "reduced": self.reduced})
        write_file(Path(path), tensors, shared | {META: about})

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """What `save` wrote. Raises CheckpointError for a file that is none of these."""
        file = SafetensorsFile(Path(path))
        try:
            about = json.loads(file.metadata.get(META, "{}"))
        except (ValueError, RecursionError):
            about = None
        match about:
            case {"steps": dict(steps), "reduced": bool(reduced)} if all(
                type(n) is int and n > 0 for n in steps.values()
            ):
                run = cls(reduced)
            case _:
                raise InputError(f"{path}: a safetensors file, but no recording; `Recording.save` writes them")
        for name, n in steps.items():
            run.taken[name] = [file.read(name if n == 1 else f"{name}/{i}") for i in range(n)]
        return run

    def _found(self, name: str) -> list[str]:
        name = ours(name)
        if name in self.taken:
            return [name]
        test = matcher([name], [each[: at.end()] for each in self.taken for at in re.finditer(r"\.\d+(?=\.)", each)])
        return [each for each in self.taken if test(each)]


def record(model: nn.Module, *names: str, taken: Taken = WHOLE) -> _Record:
    """Record the taps of `model` that match while it lasts: `with record(model, "blocks.*.resid_post") as run`.

    Names are those of `cutaway taps`, patterns of them (`tap.matcher`), or ones that TransformerLens and Hugging Face
    users know (`names.ours`). Nothing is changed: a tensor is the one that the model itself computes, bit for bit.
    Where a fused kernel has none inside (scores, pattern), the written-out form is run instead, equal but for rounding;
    so it is for a decoded token, which is otherwise computed in fewer calls, and for a prompt whose last logits alone
    are asked for, of which the last feed-forward network otherwise reads one row.

    Raises InputError at its end for a name that nothing answered to although the model ran.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> with record(model, "blocks[-1].attn.pattern") as run:
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> run.names, tuple(run["blocks.1.attn.pattern"].shape)
    (['blocks.1.attn.pattern'], (1, 4, 3, 3))
    """
    return _Record(model, names, taken)


class _Record:
    """A recording, for as long as a `with` lasts."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], taken: Taken) -> None:
        check_model(model)
        try:
            patterns = patterns_of(names)
        except TypeError as e:
            text = "record: names are texts, one after the other: record(model, 'blocks.0.attn.z', 'final')"
            raise InputError(text) from e
        self.model, self.names = model, names
        self.run = Recording(reduced=taken.reduce is not None)
        kept, whole = self.run.taken, taken is WHOLE

        def hear(name: str, x: Tensor) -> None:
            if _computed_again() is not None:
                return
            if not whole and name not in POSITIONS:
                x = taken.of(x)
            elif x.requires_grad:
                x = x.detach()
            if name in kept:
                kept[name].append(x)
            else:
                kept[name] = [x]

        places = ("encoder.positions", "decoder.positions") if "decoder" in original(model)._modules else ("positions",)
        self.listening = listening(model, hear, *patterns, *places)

    def __enter__(self) -> Recording:
        self.listening.__enter__()
        return self.run

    def __exit__(self, kind: object, *error: object) -> None:
        self.listening.__exit__()
        if kind is not None:
            return
        if self.run.taken:
            check_answered(self.model, self.names, self.run.taken)
        else:
            check_begun(self.model, self.names)
