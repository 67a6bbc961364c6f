"""A block is a list of stages; a stage is one or more branches that read the same stream and are summed into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from cutaway.spec.attention import Cross, Latent, MultiHead, NoAttention, NoCross, SlidingMask, sizes
from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts, NoFeedForward
from cutaway.spec.norms import NoNorm, Norm
from cutaway.spec.record import Record
from cutaway.spec.residual import Add, Residual

Part = Annotated[
    NoAttention | MultiHead | Latent | Cross | NoCross | Dense | Gated | MixtureOfExperts | NoFeedForward,
    Field(discriminator="kind"),
]

BRANCH_NAMES = {
    "no_attn": "attn", "multi_head": "attn", "latent": "attn", "cross": "cross", "no_cross": "cross",
    "dense": "ffn", "gated": "ffn", "moe": "ffn", "no_ffn": "ffn",
}  # fmt: skip


class Branch(Record):
    """norm_out(part(norm_in(.))): the update that a part proposes."""

    part: Part
    norm_in: Norm = NoNorm()
    norm_out: Norm = NoNorm()

    @property
    def name(self) -> str:
        """What the branch is called in a block: attn, cross or ffn."""
        return BRANCH_NAMES[self.part.kind]


class Stage(Record):
    """norm_sum(skip + sum of scale * branch(h)), h = norm(x): one norm feeds all branches, or each has its own.

    Pre-norm: norm_in of the branch (or `norm` with several branches); the 2017 post-norm: norm_sum; Gemma 2 has
    norm_in and norm_out; OLMo 2 norm_out alone.
    """

    branches: Annotated[tuple[Branch, ...], Field(min_length=1)]
    norm: Norm = NoNorm()
    norm_sum: Norm = NoNorm()
    residual: Residual = Add()

    @property
    def scale(self) -> float | Literal["scalar", "channel"]:
        """What each update is multiplied by: a number, or the shape of a learned scale."""
        return self.residual.scale if isinstance(self.residual, Add) else 1.0


class Block(Record):
    """One layer of the model."""

    kind: Literal["block"] = "block"
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]

    @property
    def branches(self) -> tuple[Branch, ...]:
        return tuple(branch for stage in self.stages for branch in stage.branches)


class Repeat(Record):
    """A pattern of blocks, `times` over."""

    kind: Literal["repeat"] = "repeat"
    times: Annotated[int, Field(ge=1, le=10_000)]
    blocks: Annotated[tuple[Block, ...], Field(min_length=1)]


Layer = Annotated[Block | Repeat, Field(discriminator="kind")]


def attentions(blocks: Iterable[Block]) -> list[MultiHead | Latent]:
    """Every self-attention that is there, in running order."""
    parts = [branch.part for block in blocks for branch in block.branches]
    return [part for part in parts if isinstance(part, (MultiHead, Latent))]


class Kept(NamedTuple):
    """What a cache keeps of a token in a layer: heads, the widths of a key and a value (0: nothing is kept), and how
    many positions the layer looks back at most, 0 where nothing ends that."""

    n_heads: int
    key_dim: int
    value_dim: int
    window: int


def kept(block: Block, d_model: int) -> Kept:
    """What a layer's self-attention leaves in a cache; one that borrows its keys leaves nothing."""
    for part in attentions([block]):
        if isinstance(part, Latent):
            return Kept(1, part.rope_dim, part.kv_rank, window(block))
        if part.share_kv == "none":
            n = sizes(part, d_model)
            return Kept(n.n_kv_heads, n.head_dim, n.value_dim, window(block))
    return Kept(0, 0, 0, window(block))


def window(block: Block) -> int:
    """How many positions a sliding window lets a layer see, 0 without one."""
    masks = [part.mask for part in attentions([block])]
    return next((mask.window for mask in masks if isinstance(mask, SlidingMask)), 0)
