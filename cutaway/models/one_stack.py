"""Decoder-only, prefix and encoder models: one stack with a head."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from cutaway import spec
from cutaway.models.shown import shown
from cutaway.models.stack import ALL, Stack, rows_asked
from cutaway.parts.build import build_head
from cutaway.parts.slots import Cache
from cutaway.parts.step import NOTHING, Given


class OneStack(Stack):
    """head(stack(ids)): the spec's kinds of mask and head make it a decoder, a prefix model or an encoder."""

    def __init__(self, record: spec.Decoder | spec.PrefixDecoder | spec.Encoder | spec.ImageEncoder) -> None:
        super().__init__(record, record.d_model, record.dropout)
        self.spec, self.pools = record, spec.pools(record.head)
        self.head = build_head(record.head, record.d_model, self.embedding)

    def forward(self, ids: Tensor, given: Given = NOTHING, cache: Cache | None = None, last: bool = False) -> Tensor:
        """Logits [B T V], classes or vectors of ids [B T] or images [B C H W].

        With `last` of the last column alone; a head that pools a row reads all of it.
        """
        step = self.begin(ids, given, cache)
        rows = rows_asked(last, self.pools, step)
        return self.head(self.run(ids, step, cache, rows), step if rows == ALL else step.only(rows))

    def hidden(self, ids: Tensor, given: Given = NOTHING) -> Float[Tensor, "B T D"]:
        """The states after the final norm."""
        return self.run(ids, self.begin(ids, given, None))

    def __repr__(self) -> str:
        return str(shown(self, self.spec))

    def _repr_html_(self) -> str:
        return shown(self, self.spec)._repr_html_()
