"""From ids, or from images, to the first state of the stream."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.parts.inputs import check_device, check_ids, check_images
from cutaway.parts.linear import Linear
from cutaway.parts.norms import normed
from cutaway.parts.slots import FULL
from cutaway.parts.step import Step
from cutaway.tap import tap


class Table(nn.Module):
    """A learned row for each index."""

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_rows, width))

    def forward(self, index: Int[Tensor, "*B"]) -> Float[Tensor, "*B W"]:
        return F.embedding(index, self.weight)


class TokenEmbedding(nn.Module):
    """dropout(norm(factor * table[id] + types[type] + position)), projected to d_model where it is narrower.

    (Vaswani et al. 2017, arXiv:1706.03762; Devlin et al. 2018, arXiv:1810.04805; OPT 2022, arXiv:2205.01068;
    ELECTRA 2020, arXiv:2003.10555.) `shared`: the table of another embedding, read here and owned there.
    """

    def __init__(
        self, record: spec.TokenEmbedding, d_model: int, vocab_size: int, norm: nn.Module | None, dropout: float,
        shared: Table | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        width, inner = spec.table_width(record, d_model), spec.inner_width(record, d_model)
        self.record, self.width, self.dropout, self.norm = record, inner, dropout, norm
        self.vocab_size, self.n_token_types = vocab_size, record.n_token_types
        self.pad_id = counted_pad(record.positions)
        self.factor = math.sqrt(d_model) if record.factor == "sqrt_d_model" else record.factor
        self.tokens = Table(vocab_size, width) if shared is None else None
        self.shared = (shared,)
        self.projection = Linear(width, d_model, record.projection_bias) if record.projection != "none" else None
        self.types = Table(record.n_token_types, inner) if record.n_token_types else None
        self.positions = position_table(record.positions, inner)

    @property
    def dtype(self) -> torch.dtype:
        return self.table.weight.dtype

    @property
    def table(self) -> Table:
        table = self.shared[0] if self.tokens is None else self.tokens
        assert table is not None
        return table

    def ids(self, ids: Any) -> Int[Tensor, "B T"]:
        """The ids themselves; raises InputError for what is none of this vocabulary, or lies on another device."""
        check_ids(ids, self.vocab_size)
        check_device(ids, self.table.weight, "ids")
        return ids

    def forward(self, ids: Int[Tensor, "B T"], step: Step) -> Float[Tensor, "B T D"]:
        x = tap(self, "tokens", self.table(ids))
        if self.factor != 1.0:
            x = x * torch.tensor(self.factor, dtype=x.dtype)  # rounded to the model's dtype, as Gemma was trained
        if self.record.projection == "before_positions":
            x = self._projected(x)
        if self.types is not None:
            x = x + self.types(torch.zeros_like(ids) if step.types is None else step.types)
        if not isinstance(self.record.positions, spec.NoPositions):
            vectors = position_vectors(self.record.positions, self.positions, step, self.width)
            x = x + tap(self, "position", vectors.to(x.dtype))
        x = F.dropout(normed(self.norm, x), self.dropout, self.training)
        return self._projected(x) if self.record.projection == "after_norm" else x

    def _projected(self, x: Tensor) -> Tensor:
        assert self.projection is not None
        return self.projection(x)


class PatchEmbedding(nn.Module):
    """dropout(norm(W patch + b + position)), a learned vector before the patches.

    (Dosovitskiy et al. 2020, arXiv:2010.11929.)
    """

    vocab_size, n_token_types, pad_id = 0, 0, None

    def __init__(self, record: spec.PatchEmbedding, d_model: int, norm: nn.Module | None, dropout: float) -> None:
        super().__init__()
        self.record, self.width, self.dropout, self.norm = record, d_model, dropout, norm
        self.patches = Linear(record.patch_size, d_model, record.bias)
        self.class_token = nn.Parameter(torch.empty(d_model)) if record.class_token else None
        self.positions = position_table(record.positions, d_model)

    @property
    def dtype(self) -> torch.dtype:
        return self.patches.weight.dtype

    @property
    def table(self) -> Table:
        raise InputError("the model reads images, which have no table of ids; give it a tensor of images")

    def ids(self, images: Any) -> Int[Tensor, "B T"]:
        """A 0 for each vector that the images become; raises InputError for what is no image of these sizes."""
        check_images(images, self.record)
        check_device(images, self.patches.weight, "images")
        return torch.zeros(images.shape[0], self.record.n_tokens, dtype=torch.long, device=images.device)

    def forward(self, images: Float[Tensor, "B C H W"], step: Step) -> Float[Tensor, "B T D"]:
        x = tap(self, "patches", self.patches(patches(images.to(self.dtype), self.record)))
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(x.shape[0], 1, -1), x), 1)
        if not isinstance(self.record.positions, spec.NoPositions):
            vectors = position_vectors(self.record.positions, self.positions, step, self.width)
            x = x + tap(self, "position", vectors.to(x.dtype))
        return F.dropout(normed(self.norm, x), self.dropout, self.training)


def patches(images: Float[Tensor, "B C H W"], record: spec.PatchEmbedding) -> Float[Tensor, "B T P"]:
    """The patches row by row, each its first channel row by row, then the next."""
    cut = images.unflatten(3, (-1, record.patch_width)).unflatten(2, (-1, record.patch_height))  # B C rows h columns w
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def position_table(record: spec.NoPositions | spec.Sinusoidal | spec.Learned, width: int) -> Table | None:
    """The rows that are learned, one a position."""
    return Table(record.n_positions + record.offset, width) if isinstance(record, spec.Learned) else None


def counted_pad(record: spec.NoPositions | spec.Sinusoidal | spec.Learned) -> int | None:
    """The pad id where positions are counted from the ids."""
    counted = None if isinstance(record, spec.NoPositions) else record.counted
    return counted.pad_id if isinstance(counted, spec.FromIds) else None


def position_vectors(
    record: spec.Sinusoidal | spec.Learned, table: Table | None, step: Step, width: int
) -> Float[Tensor, "B T W"]:
    """A vector for each token's position; raises InputError where a text is longer than a learned table."""
    row = position_rows(record, step)
    if isinstance(record, spec.Sinusoidal):
        return sinusoids(record, row, width, step.dtype)
    assert table is not None
    n_rows = len(table.weight)
    unread = torch.compiler.is_compiling()  # what is traced has no values to look at
    end = step.keys[FULL].positions.shape[1] + record.offset  # no token stands further on
    if unread or (end > n_rows and row.numel() and int(row.max()) >= n_rows):
        row = torch.where((step.query.owners < 0) & (row >= n_rows), 0, row)  # padding beyond the table: nobody looks
        if not unread and (last := int(row.max())) >= n_rows:
            raise InputError(
                f"positions: token {last - record.offset + 1} of a row, but the model has learned "
                f"{n_rows - record.offset} positions; shorten the text"
            )
    return table(row)


def position_rows(record: spec.Sinusoidal | spec.Learned, step: Step) -> Int[Tensor, "B T"]:
    """Which row of the table each token takes, as `record.counted` says."""
    match record.counted:
        case spec.ByColumn():
            return step.columns + record.offset
        case spec.FromIds(pad_id=pad):
            assert step.counts is not None
            return torch.where(step.ids != pad, step.counts + record.offset, pad)
    return step.positions + record.offset


def sinusoids(record: spec.Sinusoidal, row: Tensor, width: int, dtype: torch.dtype) -> Float[Tensor, "B T W"]:
    """sin and cos of row * frequency, computed in float64 (Vaswani et al. 2017).

    An odd width lacks the last cosine; in the closed form, as in fairseq, its last column is 0.
    """
    closed = record.frequencies == "closed"
    pairs = width // 2 if closed else (width + 1) // 2
    index = torch.arange(pairs, dtype=torch.float64, device=row.device)
    exponent = index / max(pairs - 1, 1) if closed else 2 * index / width
    angle = row[..., None].double() * record.base**-exponent
    sin, cos = angle.sin(), angle.cos()
    if record.layout == "interleaved":
        out = torch.stack((sin, cos), -1).flatten(-2)[..., :width]
    else:
        out = torch.cat((sin, cos[..., : width // 2]), -1)
    out = F.pad(out, (0, width - out.shape[-1]))
    if closed and isinstance(record.counted, spec.FromIds):
        out = out.masked_fill((row == record.counted.pad_id)[..., None], 0.0)
    return out.to(dtype)
