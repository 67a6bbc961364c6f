"""Take parts out of a spec, and the same weights into the model that is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.ablation.knobs import Chosen, Path, choose
from cutaway.errors import InputError
from cutaway.models import Transformer, build
from cutaway.tap import check_model
from cutaway.tracing.edit import check_experts


def remove(model: Transformer, *parts: str) -> Transformer:
    """A model without some parts, sharing all remaining weights; the given one stays as it is.

    A part is a name (`blocks.3.ffn`, `decoder.blocks.0.cross.head.2`, `blocks[2:4]`), a pattern, or the end of names,
    which means all of them: `mask`, `head.5`, `encoder.final_norm`. `knobs.WITHOUT` says what is left without each.
    Heads and neurons lose what they write: their columns of o_proj and down_proj are 0 in a copy; an expert is given
    the choice bias -inf.

    Raises InputError for a part that the model does not have, and SpecError where one stands on another (layers that
    read the keys of a removed one).

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> ids, moved = torch.tensor([[1, 2, 3]]), torch.tensor([[2, 1, 3]])
    >>> unmasked = cutaway.remove(model, "mask", "positions", "blocks.1.attn.head.2")
    >>> torch.allclose(unmasked(ids)[:, -1], unmasked(moved)[:, -1], atol=1e-6)
    True
    """
    check_model(model)
    return taken_out(model, choose(model.spec, parts))


def taken_out(model: Transformer, parts: list[Chosen]) -> Transformer:
    """As `remove`, of parts already chosen."""
    record: Any = model.spec
    for prefix, stack in spec.stacks(record).items():
        path = (prefix.removesuffix("."), "layers") if prefix else ("layers",)
        record = _put(record, path, stack.blocks)
    puts = [put for part in parts for put in part.knob.puts]
    for path, value in sorted(puts, key=lambda put: -len(put[0])):  # what stands inside another part goes first
        record = _put(record, path, value)
    weights = dict(model.named_parameters())
    changed: dict[str, Tensor] = {}
    for part in parts:
        if part.knob.word == "expert":
            changed[part.knob.weight] = _never_chosen(record, weights, changed, part)
        elif part.knob.n:
            name = part.knob.weight
            changed[name] = _silenced(changed.get(name, weights[name].detach()), part.which, part.knob.width)
    return transplant(model, record, changed)


def transplant(model: Transformer, record: spec.Model, changed: Mapping[str, Tensor] = {}) -> Transformer:
    """The model of another spec with the same weights, by name; those of `changed` in place of the model's."""
    donor = dict(model.named_parameters())
    grown = build(record)
    for name, _ in list(grown.named_parameters()):
        given = changed.get(name, donor.get(name))
        if given is None:
            raise InputError(f"remove: {name} has no weights in the model; the change adds a part")
        path, _, leaf = name.rpartition(".")
        setattr(grown.get_submodule(path), leaf, nn.Parameter(given.detach(), requires_grad=False))
    return grown.eval()


def _put(record: Any, path: Path, value: object) -> Any:
    """The record with another value at a path."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(record, tuple):
        return tuple(_put(each, rest, value) if i == key else each for i, each in enumerate(record))
    return record.replace(**{str(key): _put(getattr(record, str(key)), rest, value)})


def _silenced(weight: Tensor, which: tuple[int, ...], width: int) -> Tensor:
    """The matrix with 0 in the columns that read these heads or neurons."""
    apart = weight.clone().unflatten(1, (-1, width))
    apart[:, list(which)] = 0.0
    return apart.flatten(1)


def _never_chosen(record: Any, weights: Mapping[str, Tensor], changed: Mapping[str, Tensor], part: Chosen) -> Tensor:
    """The router's choice bias, -inf for these experts. Raises InputError where too few are left to choose from."""
    name = part.knob.weight
    mixture = _mixture(record, name)
    known = changed.get(name, weights.get(name))
    like = weights[name.replace("choice_bias", "weight")]
    bias = torch.zeros(len(like), dtype=like.dtype, device=like.device) if known is None else known.detach().clone()
    bias[list(part.which)] = -torch.inf
    if mixture is not None:
        check_experts(f"remove: {part.knob.name}", bias, mixture.router, mixture.n_active)
    return bias


def _mixture(record: Any, name: str) -> spec.MixtureOfExperts | None:
    """The mixture of experts that a router's weight belongs to, None where it was removed."""
    above, _, below = name.partition("blocks.")
    block = spec.stacks(record)[above].blocks[int(below.partition(".")[0])]
    return next((b.part for b in block.branches if isinstance(b.part, spec.MixtureOfExperts)), None)
