"""A block is a list of stages; here also the two blocks of the textbooks, written out."""

from __future__ import annotations

from collections.abc import Iterable

from numpy.typing import ArrayLike

from cutaway.reference.functions import Array, identity, real
from cutaway.reference.residual import Branch, Function, Stage, stage


def block(x: ArrayLike, stages: Iterable[Stage]) -> Array:
    """x through each stage in turn. x [B, T, D] -> [B, T, D]."""
    x = real(x)
    for each in stages:
        x = stage(x, each)
    return x


def pre_norm(parts: Iterable[Function], norm: Function) -> list[Stage]:
    """x + part(norm(x)) for each part: GPT-2, Llama (Xiong et al. 2020, arXiv:2002.04745)."""
    return [Stage([Branch(part, norm_in=norm)]) for part in parts]


def post_norm(parts: Iterable[Function], norm: Function) -> list[Stage]:
    """norm(x + part(x)) for each part: the original Transformer (arXiv:1706.03762)."""
    return [Stage([Branch(part)], norm_sum=norm) for part in parts]


def stream(x: ArrayLike, blocks: Iterable[Iterable[Stage]], final_norm: Function = identity) -> Array:
    """x through every block, then the final norm."""
    x = real(x)
    for stages in blocks:
        x = block(x, stages)
    return final_norm(x)
