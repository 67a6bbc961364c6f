"""Which kinds go together: the table of legal (positions, attention, placement, model), and what a spec has of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cutaway.spec.attention import Mask, QueryKeyNorm
from cutaway.spec.block import Block, Layer, Part, Stage
from cutaway.spec.feedforward import Expert, Shared
from cutaway.spec.fields import item, kinds
from cutaway.spec.head import Head, HeadTransform
from cutaway.spec.model import Model, Spec, stacks
from cutaway.spec.norms import NoNorm, Norm
from cutaway.spec.positions import AbsolutePositions, Counting, RelativePositions, RopeScaling
from cutaway.spec.record import Record
from cutaway.spec.residual import Residual

ABSOLUTE = ("none", "sinusoidal", "learned")
RELATIVE = ("rope", "alibi", "t5")
POSITIONS = {"no_attn": ABSOLUTE, "multi_head": ABSOLUTE + RELATIVE, "latent": ABSOLUTE + RELATIVE}
PLACEMENTS = ("pre", "post", "sandwich", "output", "parallel_shared", "parallel_own")
MODELS = ("decoder", "prefix", "encoder", "encoder_decoder")
MODEL_OF = {"image_encoder": "encoder"}
"""What goes together in a stack does so whatever it reads."""


class Pair(NamedTuple):
    """One legal combination: the kind of positions, of self-attention, of norm placement, of model."""

    positions: str
    attention: str
    placement: str
    model: str


def legal_pairs() -> list[Pair]:
    """Every combination of kinds that a spec may have: relative positions need an attention, all else is free.

    Positions are absolute (of the embedding) or relative (of the attention); a spec may have both, and then counts
    for each.

    >>> len(legal_pairs())
    360
    """
    return [
        Pair(positions, attention, placement, model)
        for attention, fitting in POSITIONS.items()
        for positions in fitting
        for placement in PLACEMENTS
        for model in MODELS
    ]


def pairs_in(spec: Model) -> set[Pair]:
    """The combinations that a spec has, one for each self-attention and placement in each of its stacks."""
    found = set()
    for stack in stacks(spec).values():
        absolute = stack.embedding.positions.kind
        for block in stack.blocks:
            for stage, part in _self_attentions(block):
                relative = "none" if part.kind == "no_attn" else part.positions.kind
                for positions in {absolute, relative} - {"none"} or {"none"}:
                    found.add(Pair(positions, part.kind, placement(stage), MODEL_OF.get(spec.kind, spec.kind)))
    return found


def placement(stage: Stage) -> str:
    """Where a stage's norms stand: one of PLACEMENTS, `none`, or `mixed`.

    pre: before the one branch; post: on the sum (2017); sandwich: before and after it (Gemma 2); output: after it
    (OLMo 2); parallel: several branches that read one norm (`shared`, GPT-J) or each its own (NeoX).
    """
    there = {name for name in ("norm", "norm_sum") if not isinstance(getattr(stage, name), NoNorm)}
    for name in ("norm_in", "norm_out"):
        has = [not isinstance(getattr(branch, name), NoNorm) for branch in stage.branches]
        if any(has) and not all(has):
            return "mixed"
        there |= {name} if all(has) else set()
    return _NAMES.get((len(stage.branches) > 1, frozenset(there)), "mixed" if there else "none")


_NAMES = {
    (False, frozenset({"norm_in"})): "pre",
    (False, frozenset({"norm"})): "pre",
    (False, frozenset({"norm_in", "norm_out"})): "sandwich",
    (False, frozenset({"norm", "norm_out"})): "sandwich",
    (True, frozenset({"norm"})): "parallel_shared",
    (True, frozenset({"norm_in"})): "parallel_own",
    **{(several, frozenset({"norm_sum"})): "post" for several in (False, True)},
    **{(several, frozenset({"norm_out"})): "output" for several in (False, True)},
}


UNIONS: dict[str, Any] = {
    "Model": Spec,
    "Layer": Layer,
    "Part": Part,
    "Mask": Mask,
    "AbsolutePositions": AbsolutePositions,
    "RelativePositions": RelativePositions,
    "Counting": Counting,
    "RopeScaling": RopeScaling,
    "QueryKeyNorm": QueryKeyNorm,
    "Norm": Norm,
    "Residual": Residual,
    "Expert": Expert,
    "SharedExpert": Shared,
    "Head": Head,
    "HeadTransform": HeadTransform,
}
_UNION_OF = {frozenset(kinds(union).values()): name for name, union in UNIONS.items()}


def all_kinds() -> set[str]:
    """Every kind of every union, as `Mask.sliding`."""
    return {f"{name}.{kind}" for name, union in UNIONS.items() for kind in kinds(union)}


def kinds_in(spec: Model) -> set[str]:
    """The kinds of each union that a spec holds, as `Mask.sliding`."""
    found = {f"Model.{spec.kind}"}
    for record in _walk(spec):
        for name, field in type(record).model_fields.items():
            inner = item(field.annotation)
            union = _UNION_OF.get(frozenset(kinds(field.annotation if inner is None else inner).values()))
            if union is not None:
                held = getattr(record, name)
                found |= {f"{union}.{each.kind}" for each in (held if isinstance(held, tuple) else (held,))}
    return found


def _walk(value: Any) -> Iterator[Record]:
    if isinstance(value, Record):
        yield value
        for _, held in value:
            yield from _walk(held)
    elif isinstance(value, tuple):
        for held in value:
            yield from _walk(held)


def _self_attentions(block: Block) -> Iterator[tuple[Stage, Any]]:
    for stage in block.stages:
        for branch in stage.branches:
            if branch.name == "attn":
                yield stage, branch.part
