"""A stack of blocks with its embedding and final norm: a whole model without a head, or one side of two."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from cutaway import spec
from cutaway.models.inputs import check_given, check_ids, check_images
from cutaway.parts.build import Builder, build_embedding, build_norm
from cutaway.parts.embedding import PatchEmbedding, Table
from cutaway.parts.norms import normed
from cutaway.parts.slots import Cache
from cutaway.parts.step import Given, Step, begin
from cutaway.tap import tap


class Stack(nn.Module):
    """final_norm(blocks(embedding(ids)))."""

    def __init__(
        self, record: spec.Side | spec.Decoder | spec.PrefixDecoder | spec.Encoder | spec.ImageEncoder, d_model: int,
        dropout: spec.Dropout, shared: Table | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        builder = Builder(d_model, dropout)
        self.vocab_size, self.context_length = record.vocab_size, record.context_length
        self.pad_id = counted_pad(record.embedding)
        self.n_token_types = 0 if isinstance(record.embedding, spec.PatchEmbedding) else record.embedding.n_token_types
        self.embedding = build_embedding(record.embedding, d_model, record.vocab_size, dropout.embedding, shared)
        self.blocks = builder.blocks(record.blocks)
        self.relative_bias = builder.relative_bias
        self.final_norm = build_norm(record.final_norm, d_model)

    def begin(self, ids: Tensor, given: Given, cache: Cache | None) -> Step:
        """The record of a call on ids [B T] or images [B C H W]; raises InputError where they do not fit the model."""
        images = None
        if isinstance(self.embedding, PatchEmbedding):
            check_images(ids, self.embedding.record)
            ids, images = self.embedding.ids(ids), ids.to(self.embedding.dtype)
        else:
            check_ids(ids, self.vocab_size)
        check_given(given, ids, self.n_token_types)
        step = begin(ids, given, cache, self.embedding.dtype, self.pad_id, self.context_length)
        return step if images is None else replace(step, images=images)

    def run(self, step: Step, given: Given, cache: Cache | None = None) -> Float[Tensor, "B T D"]:
        """The states after the final norm."""
        tap(self, "positions", step.positions)  # to be seen only: what is made of them has its own taps
        x = tap(self, "embedded", self.embedding(step.ids, step, given.types))
        for index, block in enumerate(self.blocks):
            x = block(x, step, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.commit()
        return tap(self, "final", normed(self.final_norm, x))


def counted_pad(record: spec.TokenEmbedding | spec.PatchEmbedding) -> int | None:
    """The pad id where absolute positions are counted from the ids."""
    match record.positions:
        case spec.Learned(counted=spec.FromIds(pad_id=pad_id)) | spec.Sinusoidal(counted=spec.FromIds(pad_id=pad_id)):
            return pad_id
    return None
