"""Weights into a model: each of our tensors from exactly one of theirs, nothing left over, nothing made up."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from cutaway.checkpoints.rules import Rule
from cutaway.checkpoints.weights import check_finite
from cutaway.errors import CheckpointError


class Source(Protocol):
    """A checkpoint's tensors by name. `read` without `out` may return the file's own memory."""

    where: str

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, out: Tensor | None = None) -> Tensor: ...


@dataclass
class Filled:
    """What became of the checkpoint's tensors: read ones, ignored ones (the pattern that did), tied copies."""

    used: list[str] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    tied: list[str] = field(default_factory=list)


def fill(
    model: nn.Module, source: Source, rules: list[Rule], dtype: torch.dtype,
    ignored: tuple[str, ...] = (), renamed: Callable[[str], str] = str,
) -> Filled:  # fmt: skip
    """Put every tensor of the source into a model built without memory, in `dtype`, a tensor at a time.

    Raises CheckpointError for a tensor that is missing, unknown or of another shape.
    """
    theirs = _names(source, renamed)
    wanted = {name for name, _ in model.named_parameters()}
    report, filled = Filled(), set()
    by_name: dict[str, list[Rule]] = {}
    for rule in rules:
        by_name.setdefault(rule.theirs, []).append(rule)
    for name, own in theirs.items():
        candidates = by_name.get(name, [])
        rule = next((each for each in candidates if set(each.ours) <= wanted), None)
        if rule is None and candidates:
            report.tied.append(own)
        elif rule is None:
            pattern = next((p for p in ignored if fnmatch.fnmatchcase(name, p)), None)
            if pattern is None:
                raise CheckpointError(f"{source.where}: tensor {own} is not understood{_near(name, by_name)}")
            report.ignored[own] = pattern
        else:
            _put(model, source, own, rule, dtype)
            report.used.append(own)
            filled.update(rule.ours)
    missing = sorted(wanted - filled)
    if missing:
        their = next((rule.theirs for rule in rules if missing[0] in rule.ours), missing[0])
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{source.where}: tensor {their} is missing{more}; the checkpoint is incomplete")
    return report


def _names(source: Source, renamed: Callable[[str], str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for own in source.names():
        name = renamed(own)
        if name in out:
            raise CheckpointError(f"{source.where}: {out[name]} and {own} are both {name}; keep one of them")
        out[name] = own
    return out


def _put(model: nn.Module, source: Source, own: str, rule: Rule, dtype: torch.dtype) -> None:
    targets = {name: model.get_parameter(name) for name in rule.ours}
    if not rule.ops:
        (target,) = targets.values()
        _check(source, own, source.shape(own), tuple(target.shape))
        stored = source.read(own, torch.empty(target.shape, dtype=dtype) if _must_copy(source, own, dtype) else None)
        check_finite(stored, own, source.where)
        _assign(model, rule.ours[0], stored)
        return
    try:
        stored = source.read(own)
        check_finite(stored, own, source.where)
        pieces = rule.read(stored)
    except (RuntimeError, ValueError) as error:
        wanted = {name: tuple(target.shape) for name, target in targets.items()}
        raise CheckpointError(
            f"{source.where}: {own} has shape {source.shape(own)}, which cannot become {wanted}"
        ) from error
    for name, piece in pieces.items():
        _check(source, own, tuple(piece.shape), tuple(targets[name].shape))
        _assign(model, name, piece.to(dtype).contiguous())


def _must_copy(source: Source, own: str, dtype: torch.dtype) -> bool:
    stored_dtype = getattr(source, "dtype", None)
    return stored_dtype is None or stored_dtype(own) != dtype


def _check(source: Source, own: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if got != wanted:
        raise CheckpointError(f"{source.where}: {own} has shape {got}, the configuration asks for {wanted}")


def _assign(model: nn.Module, name: str, tensor: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, nn.Parameter(tensor))


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f" (near {close[0]})" if close else "; the file and its configuration do not belong together"
