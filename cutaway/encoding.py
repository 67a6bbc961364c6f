"""What a model makes of whole texts: vectors for search, guesses for masked tokens, classes. All take rows of ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Stack, Transformer
from cutaway.parts.head import pool
from cutaway.parts.inputs import padded
from cutaway.parts.step import Given, Memory

Pool = Literal["first", "mean", "last"]
SIZE = 32
"""Rows that are computed at a time."""


@dataclass(frozen=True)
class Rows:
    """Texts as ids, and, where two texts share a row, which of them each id belongs to (0 or 1)."""

    ids: Sequence[Sequence[int]]
    types: Sequence[Sequence[int]] | None = None


@torch.no_grad()
def vectors(
    model: Transformer, rows: Rows, how: Pool | None = None, normalise: bool | None = None
) -> Float[Tensor, "B D"]:
    """One vector a row (Reimers and Gurevych 2019, arXiv:1908.10084).

    As the model's own head pools and normalises where it is one for vectors of rows; else, and where the caller says
    otherwise, `how` of the last states over the real tokens (mean unless given), of length 1 with `normalise`. An
    encoder-decoder's states are its encoder's.
    """
    if how not in (None, "first", "mean", "last"):
        raise InputError(f"pool: {how!r}; choose first, mean or last")
    head = model.spec.head
    own = head if isinstance(head, spec.VectorHead) and head.pool != "none" and how is None else None
    out = _stack(model).embedding.table.weight.new_empty(len(rows.ids), model.spec.d_model)
    if own is not None and normalise in (None, own.normalise) and not isinstance(model, EncoderDecoder):
        return torch.stack(outputs(model, rows)) if rows.ids else out
    record = spec.VectorHead(pool=how or ("mean" if own is None else own.pool))
    for index, ids, given in _batches(model, rows):
        stack = _stack(model)
        step = stack.begin(ids, given, None)
        out[index] = pool(stack.run(ids, step), record, step)
    return F.normalize(out, dim=-1) if normalise else out


@torch.no_grad()
def outputs(model: Transformer, rows: Rows) -> list[Tensor]:
    """What the head gives for each row, alone or with one line a token; padding is cut off.

    An encoder-decoder reads the row as source and, as target, its start id and the row without its end.
    """
    out: list[Tensor] = [torch.empty(0)] * len(rows.ids)
    for index, ids, given in _batches(model, rows):
        if isinstance(model, EncoderDecoder):
            memory = model.encode(ids, given)
            result = model(_shifted(model.spec, ids), _target(given, memory))
        else:
            result = model(ids, given)
        for place, row in zip(index, result, strict=True):
            out[place] = row[: len(rows.ids[place])] if row.dim() == 2 else row
    return out


def masked(model: Transformer, ids: Sequence[int], mask_id: int, n: int = 5) -> list[list[tuple[int, float]]]:
    """For each masked token of a row the n likeliest ids and their probabilities.

    (Devlin et al. 2018, arXiv:1810.04805.)

    Raises InputError for a model that guesses no masked tokens, or a row without one.
    """
    if not isinstance(model.spec.head, spec.MaskedHead):
        raise InputError(f"masked tokens: a {model.spec.head.kind} head guesses none; use a masked language model")
    places = [place for place, token in enumerate(ids) if token == mask_id]
    if not places:
        raise InputError(f"masked tokens: none of the {len(ids)} tokens is the mask; put one into the text")
    every = outputs(model, Rows([ids]))[0][places].softmax(-1)
    shares = every.topk(min(n, every.shape[-1]))
    return [list(zip(*pair, strict=True)) for pair in zip(shares.indices.tolist(), shares.values.tolist(), strict=True)]


def pseudo_losses(model: Transformer, ids: Sequence[int], mask_id: int, kept: Collection[int] = ()) -> Tensor:
    """-log p of each token of a row from all its others, the token itself masked; those of the ids `kept` left out.

    (Salazar et al. 2020, arXiv:1910.14659.) A pass for each token.
    """
    places = [place for place, token in enumerate(ids) if token not in kept]
    rows = [[*ids[:place], mask_id, *ids[place + 1 :]] for place in places]
    losses = []
    for start in range(0, len(rows), SIZE):
        found = outputs(model, Rows(rows[start : start + SIZE]))
        for place, logits in zip(places[start : start + SIZE], found, strict=True):
            losses.append(-logits[place].double().log_softmax(-1)[ids[place]])
    return torch.stack(losses) if losses else torch.empty(0, dtype=torch.float64)


def classes(model: Transformer, rows: Rows) -> list[Tensor]:
    """Probabilities of the classes for each row, or for each of its tokens; values where the head gives those.

    Raises InputError for a model without classes.
    """
    head = model.spec.head
    if not isinstance(head, spec.ClassHead):
        raise InputError(f"classes: a {head.kind} head has none; use a classifier")
    return [probabilities(head, row) for row in outputs(model, rows)]


def probabilities(head: spec.ClassHead, logits: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
    """What the numbers of a class head mean, as its `problem` says."""
    match head.problem:
        case "single_label":
            return logits.softmax(-1)
        case "multi_label":
            return logits.sigmoid()
    return logits


def names(head: spec.ClassHead) -> tuple[str, ...]:
    """What the classes are called: their labels, else their numbers."""
    return head.labels or tuple(str(index) for index in range(head.n_classes))


def _stack(model: Transformer) -> Stack:
    return model.encoder if isinstance(model, EncoderDecoder) else model


def _batches(model: Transformer, rows: Rows) -> Iterator[tuple[list[int], Tensor, Given]]:
    """Rows of like length together, padded on the right, which moves no position."""
    stack = _stack(model)
    device = stack.embedding.table.weight.device
    empty = next((place for place, row in enumerate(rows.ids) if not row), None)
    if empty is not None:
        raise InputError(f"row {empty}: no tokens; give at least one")
    order = sorted(range(len(rows.ids)), key=lambda place: len(rows.ids[place]))
    for start in range(0, len(order), SIZE):
        index = order[start : start + SIZE]
        ids, mask = padded([rows.ids[place] for place in index], stack.embedding.pad_id, device, side="right")
        types = None if rows.types is None else padded([rows.types[place] for place in index], 0, device, "right")[0]
        yield index, ids, Given(mask=mask, types=types)


def _shifted(record: spec.EncoderDecoder, ids: Tensor) -> Tensor:
    start = record.generation.start_id
    if start == "none":
        raise InputError("start_id: an encoder-decoder needs the id that its decoder begins with; set it")
    return torch.cat((torch.full_like(ids[:, :1], start), ids[:, :-1]), 1)


def _target(source: Given, memory: Memory) -> Given:
    return Given(mask=source.mask, memory=memory)
