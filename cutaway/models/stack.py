"""A stack of blocks with its embedding and final norm: a whole model without a head, or one side of two."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.build import Builder, build_embedding, build_norm
from cutaway.parts.embedding import Table
from cutaway.parts.norms import normed
from cutaway.parts.slots import Cache
from cutaway.parts.step import Given, Step, begin
from cutaway.tap import tap


class Stack(nn.Module):
    """final_norm(blocks(embedding(ids)))."""

    def __init__(
        self, record: spec.Side | spec.Decoder | spec.PrefixDecoder | spec.Encoder, d_model: int,
        dropout: spec.Dropout, shared: Table | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        builder = Builder(d_model, dropout)
        self.vocab_size, self.context_length = record.vocab_size, record.context_length
        self.pad_id, self.n_token_types = counted_pad(record.embedding), record.embedding.n_token_types
        self.embedding = build_embedding(record.embedding, d_model, record.vocab_size, dropout.embedding, shared)
        self.blocks = builder.blocks(record.blocks)
        self.relative_bias = builder.relative_bias
        self.final_norm = build_norm(record.final_norm, d_model)

    def begin(self, ids: Int[Tensor, "B T"], given: Given, cache: Cache | None) -> Step:
        """The record of a call on these ids; raises InputError where they do not fit the model."""
        check_ids(ids, self.vocab_size)
        end = ids.shape[1] + (0 if cache is None else cache.length)
        if self.context_length != "unlimited" and end > self.context_length and given.owners is None:
            raise InputError(f"ids: {end} tokens, but the model's context is {self.context_length}; shorten the text")
        if given.types is not None:
            check_types(given.types, ids, self.n_token_types)
        return begin(ids, given, cache, self.embedding.table.weight.dtype, self.pad_id)

    def run(self, step: Step, given: Given, cache: Cache | None = None) -> Float[Tensor, "B T D"]:
        """The states after the final norm."""
        tap(self, "positions", step.positions)  # to be seen only: what is made of them has its own taps
        x = tap(self, "embedded", self.embedding(step.ids, step, given.types))
        for index, block in enumerate(self.blocks):
            x = block(x, step, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.commit()
        return tap(self, "final", normed(self.final_norm, x))


def counted_pad(record: spec.TokenEmbedding) -> int | None:
    """The pad id where absolute positions are counted from the ids."""
    match record.positions:
        case spec.Learned(counted=spec.FromIds(pad_id=pad_id)) | spec.Sinusoidal(counted=spec.FromIds(pad_id=pad_id)):
            return pad_id
    return None


def check_ids(ids: Tensor, vocab_size: int) -> None:
    """Ids are [B, T] whole numbers within the vocabulary."""
    if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise InputError(f"ids: shape {tuple(ids.shape)} of {ids.dtype}; give whole numbers of shape [rows, tokens]")
    if ids.shape[1] == 0:
        raise InputError("ids: no tokens; give at least one")
    if ids.numel() and not torch.compiler.is_compiling():
        low, high = (int(x) for x in ids.aminmax())
        if low < 0 or high >= vocab_size:
            raise InputError(f"ids: {low if low < 0 else high} is not in the vocabulary of {vocab_size} tokens")


def check_types(types: Tensor, ids: Tensor, n_token_types: int) -> None:
    """Token types are [B, T] whole numbers below the model's; a model without any is given none or zeros."""
    if types.shape != ids.shape:
        raise InputError(f"types: shape {tuple(types.shape)}, but ids have {tuple(ids.shape)}; give one a token")
    low, high = (int(x) for x in types.aminmax())
    if low < 0 or high >= max(n_token_types, 1):
        wrong = low if low < 0 else high
        raise InputError(f"types: {wrong}, but the model has {n_token_types} token types; count them from 0")
