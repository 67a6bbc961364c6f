"""The two stacks of 2017: an encoder and a decoder joined by cross-attention."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway import spec
from cutaway.models.shown import shown
from cutaway.models.stack import ALL, Stack, rows_asked
from cutaway.parts.build import build_head
from cutaway.parts.inputs import check_memory
from cutaway.parts.slots import Cache
from cutaway.parts.step import NOTHING, Given, Memory


class EncoderDecoder(nn.Module):
    """An encoder reads the source once; a decoder writes the target and looks at it through cross-attention.

    (Vaswani et al. 2017, arXiv:1706.03762.)
    """

    def __init__(self, record: spec.EncoderDecoder) -> None:
        super().__init__()
        self.spec, self.pools = record, spec.pools(record.head)
        self.encoder = Stack(record.encoder, record.d_model, record.dropout)
        shared = self.encoder.embedding.table if record.shared_embedding else None
        self.decoder = Stack(record.decoder, record.d_model, record.dropout, shared)
        self.head = build_head(record.head, record.d_model, self.decoder.embedding)

    def encode(self, source: Int[Tensor, "B S"], given: Given = NOTHING) -> Memory:
        """What the decoder looks at: the encoder's states and which of them are real."""
        step = self.encoder.begin(source, given, None)
        return Memory(self.encoder.run(source, step), step.query.owners, step.query.plain)

    def forward(
        self, ids: Int[Tensor, "B T"], given: Given = NOTHING, cache: Cache | None = None, last: bool = False
    ) -> Float[Tensor, "B T V"]:
        """Logits of the target ids; `given.memory` is what `encode` returned, the rest speaks of the target."""
        step = self.decoder.begin(ids, given, cache)
        check_memory(given.memory, ids, self.spec.d_model)
        rows = rows_asked(last, self.pools, step)
        return self.head(self.decoder.run(ids, step, cache, rows), step if rows == ALL else step.only(rows))

    def __repr__(self) -> str:
        return str(shown(self, self.spec))

    def _repr_html_(self) -> str:
        return shown(self, self.spec)._repr_html_()
