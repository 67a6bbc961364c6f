"""A stack of blocks with its embedding and final norm: a whole model without a head, or one side of two."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts.block import Block
from cutaway.parts.build import Builder, build_embedding, build_norm
from cutaway.parts.embedding import Table
from cutaway.parts.inputs import check_given
from cutaway.parts.linear import touched
from cutaway.parts.norms import normed
from cutaway.parts.slots import Cache
from cutaway.parts.step import Given, Step, begin
from cutaway.tap import heard, tap

ALL = slice(None)


def rows_asked(last: bool, pools: bool, step: Step) -> slice:
    """The rows that a head is to read: with `last` those of the last column alone, but all where it pools them."""
    return slice(-1, None) if last and not pools and step.positions.shape[1] > 1 else ALL


class Stack(nn.Module):
    """final_norm(blocks(embedding(ids)))."""

    def __init__(
        self, record: spec.Side | spec.Decoder | spec.PrefixDecoder | spec.Encoder | spec.ImageEncoder, d_model: int,
        dropout: spec.Dropout, shared: Table | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        builder = Builder(d_model, dropout)
        self.vocab_size, self.context_length = record.vocab_size, record.context_length
        self.embedding = build_embedding(record.embedding, d_model, record.vocab_size, dropout.embedding, shared)
        self.blocks = builder.blocks(record.blocks)
        self.kept = tuple(spec.kept(block, d_model) for block in record.blocks)
        self.relative_bias = builder.relative_bias
        self.final_norm = build_norm(record.final_norm, d_model)

    def begin(self, ids: Tensor, given: Given, cache: Cache | None) -> Step:
        """The record of a call on ids [B T] or images [B C H W]; raises InputError where they do not fit the model."""
        embedding = self.embedding
        ids = embedding.ids(ids)
        check_given(given, ids, embedding.n_token_types)
        if cache is not None:
            cache.check(self.kept)
        return begin(ids, given, cache, embedding.dtype, embedding.pad_id, self.context_length)

    def run(self, ids: Tensor, step: Step, cache: Cache | None = None, rows: slice = ALL) -> Float[Tensor, "B T D"]:
        """The states after the final norm, of these rows: what no other row looks at is computed for them alone."""
        tap(self, "positions", step.positions)  # to be seen only: what is made of them has its own taps
        x = tap(self, "embedded", self.embedding(ids, step))
        n, early = len(self.blocks), rows != ALL and self._unseen(step)
        for index, block in enumerate(self.blocks):
            layer = None if cache is None else cache.layer(index)
            x = block(x, step, layer, rows) if early and index == n - 1 else block(x, step, layer)
        if cache is not None:
            cache.commit()
        final = tap(self, "final", normed(self.final_norm, x))
        return final if early else final[:, rows]

    def _unseen(self, step: Step) -> bool:
        """Whether the last block is one of ours, and nobody sees what passes it and the norm, or balances experts."""
        block = self.blocks[-1] if len(self.blocks) else None
        if not isinstance(block, Block) or step.aux is not None or heard():
            return False
        return not any(map(touched, block.modules())) and (self.final_norm is None or not touched(self.final_norm))
