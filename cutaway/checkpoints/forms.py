"""Other specs and weights that compute the same: a format may be able to say one of them and not another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from cutaway import spec
from cutaway.models import build
from cutaway.parts.norms import RMSNorm
from cutaway.parts.positions import rope_frequencies

Change = Callable[[Tensor], Tensor]
NO_TEXT = (spec.EncoderDecoder, spec.ImageEncoder)
"""Models that make no vectors of texts."""
Texts = spec.Decoder | spec.PrefixDecoder | spec.Encoder
Way = Callable[["Form"], "Form | None"]


@dataclass(frozen=True)
class Form:
    """A spec that computes what another one does once some of the weights are changed; `said` tells how."""

    record: spec.Model
    changes: dict[str, tuple[Change, ...]] = field(default_factory=dict)
    said: tuple[str, ...] = ()

    def weight(self, name: str, tensor: Tensor) -> Tensor:
        """A weight of the first spec as a weight of this one."""
        for change in self.changes.get(name, ()):
            tensor = change(tensor)
        return tensor


def forms(record: spec.Model, *more: Way) -> Iterator[Form]:
    """The spec itself, then its other forms, those with the fewest changes first; a format may know `more` ways."""
    ways = (*more, other_layout, other_gains, listed_divisors)
    for n in range(len(ways) + 1):
        for chosen in combinations(ways, n):
            form: Form | None = Form(record)
            for way in chosen:
                form = form and way(form)
            if form is not None:
                yield form


def states_alone(form: Form) -> Form | None:
    """Vectors of rows as the states that they are made of: pooling, norm and length of texts are said beside."""
    record = form.record
    if isinstance(record, NO_TEXT) or not isinstance(record.head, spec.VectorHead):
        return None
    head = spec.VectorHead(transform=record.head.transform, pooler=record.head.pooler)
    bare = _at_full_length(record.replace(head=head))
    return None if bare == record else replace(form, record=bare, said=(*form.said, "pooling in files of its own"))


def without_pooler(form: Form) -> Form | None:
    """Vectors whose length is the reader's business, without the pooler that stands beside them."""
    record = form.record
    if isinstance(record, NO_TEXT) or not isinstance(record.head, spec.VectorHead):
        return None
    bare = _at_full_length(record.replace(head=record.head.replace(normalise=False, pooler=spec.NoTransform())))
    said = "no pooler, and the reader makes vectors of length 1"
    return None if bare == record else replace(form, record=bare, said=(*form.said, said))


def _at_full_length(record: Texts) -> Texts:
    """The model with all its learned positions as its context."""
    places = record.embedding.positions
    return record.replace(context_length=places.n_positions) if isinstance(places, spec.Learned) else record


def other_layout(form: Form) -> Form | None:
    """RoPE's pairs as halves where they are neighbours and the reverse: the rows of q and k trade places."""
    changes: dict[str, tuple[Change, ...]] = {}
    layouts = set()
    for prefix, stack in spec.stacks(form.record).items():
        for i, block in enumerate(stack.blocks):
            for branch in block.branches:
                part = branch.part
                if isinstance(part, (spec.MultiHead, spec.Latent)) and isinstance(part.positions, spec.RoPE):
                    if isinstance(part, spec.Latent):
                        return None
                    layouts.add(part.positions.layout)
                    changes |= _rows(part, form.record.d_model, f"{prefix}blocks.{i}.attn.")
    if len(layouts) != 1:
        return None
    layout = "halves" if layouts == {"interleaved"} else "interleaved"
    change = lambda value: value.replace(layout=layout) if isinstance(value, spec.RoPE) else value
    return _with(form, change, changes, "rows of q and k in the other order of RoPE's pairs")


def _rows(part: spec.MultiHead, d_model: int, start: str) -> dict[str, tuple[Change, ...]]:
    n, rope = spec.sizes(part, d_model), part.positions
    assert isinstance(rope, spec.RoPE)
    turned = spec.rotary_dim(rope, n.head_dim)
    swap = partial(swap_pairs, head_dim=n.head_dim, turned=turned, to_halves=rope.layout == "interleaved")
    names = [
        f"{start}{name}.{leaf}" for name in ("q_proj", "k_proj", "q_norm", "k_norm") for leaf in ("weight", "bias")
    ]
    return {name: (swap,) for name in names}


def swap_pairs(x: Tensor, head_dim: int, turned: int, to_halves: bool) -> Tensor:
    """Within each head's first `turned` rows: pairs (2i, 2i+1) to (i, i + turned/2), or back. A gain has no columns."""
    rows = x.reshape(-1, head_dim, x.shape[-1] if x.dim() == 2 else 1).clone()
    pairs = (-1, 2) if to_halves else (2, -1)
    rows[:, :turned] = rows[:, :turned].unflatten(1, pairs).transpose(1, 2).flatten(1, 2)
    return rows.reshape(x.shape)


def other_gains(form: Form) -> Form | None:
    """RMSNorm's gain itself where it is learned as gain - 1, and the reverse."""
    norms = {
        name: m for name, m in build(form.record).named_modules() if isinstance(m, RMSNorm) and m.weight is not None
    }
    if len({m.one_plus for m in norms.values()}) != 1:
        return None
    old, new = ("one_plus", "plain") if next(iter(norms.values())).one_plus else ("plain", "one_plus")
    step, said = (1.0, "1 added to the gains of norms") if new == "plain" else (-1.0, "1 taken from the gains of norms")
    change = lambda value: value.replace(gain=new) if isinstance(value, spec.RMSNorm) and value.gain == old else value
    return _with(form, change, {f"{name}.weight": (partial(_plus, step=step),) for name in norms}, said)


def _plus(x: Tensor, step: float) -> Tensor:
    return (x.double() + step).to(torch.promote_types(x.dtype, torch.float32))


def listed_divisors(form: Form) -> Form | None:
    """Llama 3's scaling as the list of its divisors."""
    record = spec.mapped(form.record, lambda value: _listed(value, form.record))
    if record == form.record:
        return None
    return Form(record, form.changes, (*form.said, "RoPE's scaling as a list of divisors"))


def _listed(value: spec.Record, record: spec.Model) -> spec.Record:
    match value:
        case spec.MultiHead(positions=spec.RoPE(scaling=spec.Llama3Scaling() as scaling) as rope):
            turned = spec.rotary_dim(rope, spec.sizes(value, record.d_model).head_dim)
            plain = rope_frequencies(rope.replace(scaling=spec.NoScaling()), turned)
            divisors = tuple(a / b for a, b in zip(plain, rope_frequencies(rope, turned), strict=True))
            length = scaling.original_length
            if not isinstance(record, spec.EncoderDecoder) and record.context_length != "unlimited":
                length = record.context_length
            listed = spec.LongRopeScaling(
                short_factors=divisors, long_factors=divisors, original_length=length, factor=1.0, attention_factor=1.0
            )
            return value.replace(positions=rope.replace(scaling=listed))
    return value


def _with(
    form: Form, change: Callable[[spec.Record], spec.Record], changes: dict[str, tuple[Change, ...]], said: str
) -> Form:
    merged = dict(form.changes)
    for name, steps in changes.items():
        merged[name] = merged.get(name, ()) + steps
    return Form(spec.mapped(form.record, change), merged, (*form.said, said))
