"""Weights into a model: each of our tensors from exactly one of theirs, nothing left over, nothing made up."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.checkpoints.rules import Rule
from cutaway.checkpoints.weights import check_finite
from cutaway.errors import CheckpointError
from cutaway.models import Transformer
from cutaway.parts.build import side_by_side


class Source(Protocol):
    """A checkpoint's tensors by name. `read` without `out` may return the file's own memory, in `dtype`; blocks, which
    have no `dtype`, are unpacked into new memory as float32.

    `drop` gives back the memory of what was read.
    """

    where: str

    def names(self) -> Iterable[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def dtype(self, name: str) -> torch.dtype | None: ...

    def read(self, name: str, out: Tensor | None = None) -> Tensor: ...

    def drop(self) -> None: ...


@dataclass
class Match:
    """Which tensor of a checkpoint each of ours is, (its name there, the rule that reads it), found without reading it.

    `copies` hold what a used one holds too: these are read and compared. `ignored` are leftovers by the pattern that
    names them.
    """

    used: list[tuple[str, Rule]] = field(default_factory=list)
    copies: list[tuple[str, Rule]] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)

    def by_ours(self) -> dict[str, tuple[str, Rule]]:
        """Our name to the tensor that holds it."""
        return {ours: (own, rule) for own, rule in self.used for ours in rule.ours}


def match(
    record: spec.Model, source: Source, rules: list[Rule], ignored: tuple[str, ...] = (),
    renamed: Callable[[str], str] = str,
) -> Match:  # fmt: skip
    """Each tensor of the source to the rule that reads it; `renamed` brings both sides' names to one form.

    Several rules may name one tensor of ours (a tied table has more than one name): the first whose tensor is there is
    used, and further ones are copies.

    Raises CheckpointError for a tensor that is missing, unknown, or unequal to its other copy.
    """
    theirs, owner, wanted = _names(source, renamed), owners(record), set(spec.weights(record))
    out, filled = Match(), set()
    for rule in rules:
        rule = replace(rule, ours=tuple(owner.get(name, name) for name in rule.ours))
        name = renamed(rule.theirs)
        if name not in theirs or not wanted.issuperset(rule.ours):
            continue
        own, again = theirs.pop(name), filled & set(rule.ours)
        if again and rule.spare:
            out.ignored[own] = "another tensor is read instead"
        else:
            (out.copies if again else out.used).append((own, rule))
        filled |= set(rule.ours)
    known = [renamed(rule.theirs) for rule in rules]
    for name, own in theirs.items():
        pattern = next((p for p in ignored if fnmatch.fnmatchcase(name, p)), None)
        if pattern is None:
            raise CheckpointError(f"{source.where}: tensor {own} is not understood{_near(name, known)}")
        out.ignored[own] = pattern
    missing = sorted(wanted - filled)
    if missing:
        their = next((rule.theirs for rule in rules if missing[0] in rule.ours), missing[0])
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{source.where}: tensor {their} is missing{more}; the checkpoint is incomplete")
    _check_copies(source, out, spec.weights(record))
    return out


def fill(model: Transformer, source: Source, found: Match, dtype: torch.dtype) -> None:
    """Put every tensor that was found into a model built without memory, in `dtype`, a tensor at a time.

    Raises CheckpointError for a tensor of another shape, or with a NaN or an infinity.
    """
    places = side_by_side(model, dtype)
    for own, rule in found.used:
        put(model, source, own, rule, dtype, places)
        source.drop()  # what was copied need not stay; what lies on the file comes back where it is used


def owners(record: spec.Model) -> dict[str, str]:
    """Names under which a model reads a table that stands under another name: a tied head's, a shared embedding's."""
    out: dict[str, str] = {}
    table = "embedding.tokens.weight"
    if isinstance(record, spec.EncoderDecoder):
        table = "decoder.embedding.tokens.weight"
        if record.shared_embedding:
            out[table] = "encoder.embedding.tokens.weight"
    if isinstance(record.head, (spec.LanguageHead, spec.MaskedHead)) and record.head.tied:
        out["head.weight"] = out.get(table, table)
    return out


def _check_copies(source: Source, found: Match, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise CheckpointError where a second copy of a tensor differs from the one that is used."""
    by = found.by_ours()
    for own, rule in found.copies:
        for name in rule.ours:
            first_own, first = by.get(name, ("", None))
            if first is None:
                raise CheckpointError(f"{source.where}: {own} overlaps another tensor of the file; keep one of them")
            used, copy = (pieces(source, *each, shapes)[name] for each in ((first_own, first), (own, rule)))
            if not torch.equal(used, copy.to(used.dtype)):
                raise CheckpointError(
                    f"{source.where}: {own} and {first_own} are one tensor in this model, but the file's differ; if "
                    "they are meant to, the configuration must say that they are not tied"
                )
        source.drop()


def _names(source: Source, renamed: Callable[[str], str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for own in source.names():
        name = renamed(own)
        if name in out:
            raise CheckpointError(f"{source.where}: {out[name]} and {own} are both {name}; keep one of them")
        out[name] = own
    return out


def pieces(source: Source, own: str, rule: Rule, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Our tensors out of one of theirs, in the stored type, on the file's own memory where that will do.

    Raises CheckpointError for another shape than theirs in `shapes`, and for a NaN or an infinity.
    """
    stored = source.read(own)
    check_finite(stored, own, source.where)
    try:
        found = rule.read(stored)
    except (RuntimeError, ValueError):
        found = {}
    if {name: tuple(piece.shape) for name, piece in found.items()} != {name: shapes[name] for name in rule.ours}:
        raise _other_shape(source, own, rule, shapes)
    return found


def put(
    model: nn.Module, source: Source, own: str, rule: Rule, dtype: torch.dtype, places: Mapping[str, Tensor],
) -> None:  # fmt: skip
    """One tensor of theirs into the parameters that its rule names, in `places` unless the file's memory will do.

    Blocks are unpacked into their places; several parameters that are cut out of one tensor keep its memory.
    """
    shapes = {name: tuple(model.get_parameter(name).shape) for name in rule.ours}
    room = lambda name: places[name] if name in places else torch.empty(shapes[name], dtype=dtype)
    if not rule.ops and source.dtype(own) != dtype:  # straight to its place
        (name,) = rule.ours
        if source.shape(own) != shapes[name]:
            raise _other_shape(source, own, rule, shapes)
        stored = source.read(own, room(name))
        check_finite(stored, own, source.where)
        assign(model, name, stored)
        return
    placed = source.dtype(own) is None and rule.ours[0] in places and len(rule.ours) == 1
    for name, piece in pieces(source, own, rule, shapes).items():
        as_is = piece.dtype == dtype and piece.is_contiguous() and not placed
        assign(model, name, piece if as_is else room(name).copy_(piece))


def _other_shape(source: Source, own: str, rule: Rule, shapes: Mapping[str, tuple[int, ...]]) -> CheckpointError:
    wanted = ", ".join(f"{name} {shapes[name]}" for name in rule.ours)
    return CheckpointError(f"{source.where}: {own} has shape {source.shape(own)}, the configuration asks for {wanted}")


def assign(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Put a tensor in the place of a parameter."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, nn.Parameter(tensor))


def _near(name: str, known: list[str]) -> str:
    if name in known:
        return ": the model that the configuration describes has no place for it"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (near {close[0]})" if close else "; the file and its configuration do not belong together"
