"""The shapes that blocks and lists of layers come in, and what stands in the first one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from cutaway import spec
from cutaway.errors import CheckpointError
from cutaway.spec.attention import Sizes
from cutaway.spec.block import Part
from cutaway.spec.norms import Norm

Stack = spec.Decoder | spec.Encoder
"""A model of one stack that reads ids."""
Build = Callable[[Part, Part, Norm], spec.Block]
"""Attention, feed-forward network and norm to a block."""
Attention = TypeVar("Attention", spec.MultiHead, spec.Latent)
NO_PARTS = "only a stack whose layers are attention and a feed-forward network fits this family"


def sequential(attn: Part, ffn: Part, norm: Norm) -> spec.Block:
    """Pre-norm: x + attn(norm(x)), then x + ffn(norm(x))."""
    return spec.Block(stages=tuple(spec.Stage(branches=(spec.Branch(part=p, norm_in=norm),)) for p in (attn, ffn)))


def chain(parts: Sequence[Part], before: Norm = spec.NoNorm(), after: Norm = spec.NoNorm()) -> spec.Block:
    """Any number of branches one after the other, a norm `before` each (pre-norm) or `after` each sum (2017)."""
    stages = (spec.Stage(branches=(spec.Branch(part=part, norm_in=before),), norm_sum=after) for part in parts)
    return spec.Block(stages=tuple(stages))


def post_norm(attn: Part, ffn: Part, norm: Norm) -> spec.Block:
    """The form of 2017: norm(x + attn(x)), then norm(x + ffn(x))."""
    return spec.Block(stages=tuple(spec.Stage(branches=(spec.Branch(part=p),), norm_sum=norm) for p in (attn, ffn)))


def sandwich(attn: Part, ffn: Part, norm: Norm) -> spec.Block:
    """A norm before and after each branch: x + norm(attn(norm(x))), then the same with ffn."""
    branches = [spec.Branch(part=part, norm_in=norm, norm_out=norm) for part in (attn, ffn)]
    return spec.Block(stages=tuple(spec.Stage(branches=(branch,)) for branch in branches))


def output_norm(attn: Part, ffn: Part, norm: Norm) -> spec.Block:
    """A norm after each branch alone: x + norm(attn(x)), then x + norm(ffn(x))."""
    branches = [spec.Branch(part=part, norm_out=norm) for part in (attn, ffn)]
    return spec.Block(stages=tuple(spec.Stage(branches=(branch,)) for branch in branches))


def parallel(attn: Part, ffn: Part, norm: Norm) -> spec.Block:
    """x + attn(h) + ffn(h), one h = norm(x) for both."""
    return spec.Block(stages=(spec.Stage(branches=(spec.Branch(part=attn), spec.Branch(part=ffn)), norm=norm),))


def parallel_two_norms(attn: Part, ffn: Part, norm: Norm) -> spec.Block:
    """x + attn(norm_a(x)) + ffn(norm_f(x))."""
    branches = tuple(spec.Branch(part=part, norm_in=norm) for part in (attn, ffn))
    return spec.Block(stages=(spec.Stage(branches=branches),))


def repeated(blocks: Sequence[spec.Block]) -> tuple[spec.Block | spec.Repeat, ...]:
    """A list of layers in a short form: a pattern that covers all at least twice, and its rest, else runs of equals."""
    n = len(blocks)
    for period in range(1, n // 2 + 1):
        if all(blocks[i] == blocks[i - period] for i in range(period, n)):
            times = n // period
            return (spec.Repeat(times=times, blocks=tuple(blocks[:period])), *blocks[times * period :])
    runs = [tuple(run) for _, run in groupby(blocks)]
    return tuple(run[0] if len(run) == 1 else spec.Repeat(times=len(run), blocks=run[:1]) for run in runs)


def layer_parts(
    record: Stack | spec.ImageEncoder | spec.Side,
) -> tuple[spec.MultiHead | spec.Latent, spec.Dense | spec.Gated | spec.MixtureOfExperts]:
    """Attention and feed-forward network of the first layer, which stand for all layers in a configuration.

    Raises CheckpointError where the first layer is not these two.
    """
    match [branch.part for block in record.blocks[:1] for branch in block.branches]:
        case [
            (spec.MultiHead() | spec.Latent()) as attn,
            (spec.Dense() | spec.Gated() | spec.MixtureOfExperts()) as ffn,
        ]:
            return attn, ffn
    raise CheckpointError(NO_PARTS)


def first_parts(record: Stack | spec.ImageEncoder | spec.Side) -> tuple[spec.MultiHead, spec.Dense | spec.Gated]:
    """The same where the heads have keys of their own and the network has no experts."""
    attn, ffn = layer_parts(record)
    if isinstance(attn, spec.MultiHead) and not isinstance(ffn, spec.MixtureOfExperts):
        return attn, ffn
    raise CheckpointError(NO_PARTS)


def first_attention(record: Stack, kind: type[Attention]) -> Attention:
    """The attention alone, of this kind, whatever network stands beside it."""
    attn, _ = layer_parts(record)
    if isinstance(attn, kind):
        return attn
    raise CheckpointError(NO_PARTS)


def first_sizes(record: Stack) -> Sizes:
    """The numbers of that attention."""
    return spec.sizes(layer_parts(record)[0], record.d_model)
