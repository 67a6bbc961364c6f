"""One head's weights on one text: a grid of tokens by tokens."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.tracing.lens import stack_of
from cutaway.tracing.record import record
from cutaway.tracing.tables import Table


@dataclass(frozen=True)
class Attention:
    """`weights` [T S] of one head; `queries` and `keys`: the texts of the tokens."""

    title: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: Float[Tensor, "T S"]
    note: str = ""

    columns = ("token", "looks at", "", "")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Each query with the keys that have most of its weight."""
        out = []
        for query, weights in zip(self.queries, self.weights, strict=True):
            shares, keys = weights.topk(min(3, len(weights)))
            looks = [
                f"{self.keys[int(k)]!r} {100 * float(w):.0f}%" for k, w in zip(keys, shares, strict=True) if w > 0.005
            ]
            out.append((repr(query), *looks, *[""] * (3 - len(looks))))
        return out

    def texts(self) -> list[tuple[str, ...]]:
        """The rows as they are shown."""
        return self.rows

    def __str__(self) -> str:
        return str(Table(self.title, self.columns, self.rows, self.note))

    def plain(self) -> dict[str, Any]:
        """As data."""
        return {"title": self.title, "queries": self.queries, "keys": self.keys, "weights": self.weights.tolist()}

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope=col>{escape(repr(key)[1:-1])}</th>" for key in self.keys)
        body = []
        for query, weights in zip(self.queries, self.weights.tolist(), strict=True):
            cells = "".join(
                f"<td class=number style='background:rgb(37 99 235 / {0.8 * w:.2f})' title='{w:.4f}'>"
                f"{f'{100 * w:.0f}' if w >= 0.005 else ''}</td>" for w in weights
            )  # fmt: skip
            body.append(f"<tr><th scope=row>{escape(repr(query)[1:-1])}</th>{cells}</tr>")
        caption = f"{escape(self.title)}: percent of a row's weight on each column"
        return f"<table><caption>{caption}</caption><tr><th></th>{head}</tr>{''.join(body)}</table>"


def attention(model: nn.Module, ids: Int[Tensor, "1 T"], texts: list[str], layer: int = 0, head: int = 0) -> Attention:
    """The weights of one head of self-attention. Raises InputError for a layer or head that the model does not have."""
    side, prefix = stack_of(model)
    if not 0 <= layer < len(side.blocks):
        raise InputError(f"layer {layer}: the model has layers 0 to {len(side.blocks) - 1}")
    name = f"{prefix}blocks.{layer}.attn.pattern"
    with torch.no_grad(), record(model, name) as run:
        model(ids)
    weights = run[name][0]
    if not 0 <= head < len(weights):
        raise InputError(f"head {head}: layer {layer} has heads 0 to {len(weights) - 1}")
    return Attention(f"Layer {layer}, head {head}", tuple(texts), tuple(texts), weights[head].float())
