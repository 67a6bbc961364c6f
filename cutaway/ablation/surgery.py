"""Take one part out of a spec, and the same weights into the model that is left."""

from __future__ import annotations

from typing import Any

from torch import nn

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import Transformer, build

KNOBS = ("positions", "mask", "attn", "ffn", "cross", "layer", "residual", "norm", "final_norm", "qk_norm", "scale",
         "soft_cap", "sinks", "gate")  # fmt: skip
ATTENTION = (spec.MultiHead, spec.Latent)


def remove(model: Transformer, knob: str) -> Transformer:
    """A model without one part, sharing all remaining weights. `knob` is a name of KNOBS, or `blocks.3.ffn`.

    Only one-stack models. Raises InputError for a part that the model does not have.

    >>> import torch, cutaway
    >>> model = cutaway.build(cutaway.preset("modern-tiny"), seed=0)
    >>> ids, moved = torch.tensor([[1, 2, 3]]), torch.tensor([[2, 1, 3]])
    >>> unmasked = cutaway.remove(cutaway.remove(model, "mask"), "positions")
    >>> torch.allclose(unmasked(ids)[:, -1], unmasked(moved)[:, -1], atol=1e-6)
    True
    """
    record = model.spec
    if isinstance(record, spec.EncoderDecoder):
        raise InputError("remove: name a one-stack model; an encoder-decoder is not taken apart yet")
    where, name = _parse(knob, len(record.blocks))
    changed = _removed(record, where, name)
    if changed == record:
        raise InputError(f"remove: {knob} changes nothing here: the model has no such part")
    return transplant(model, changed)


def transplant(model: Transformer, record: spec.Model) -> Transformer:
    """The model of another spec with the same weights, by name."""
    donor = dict(model.named_parameters())
    grown = build(record)
    for name, _ in list(grown.named_parameters()):
        if name not in donor:
            raise InputError(f"remove: {name} has no weights in the model; the change adds a part")
        path, _, leaf = name.rpartition(".")
        setattr(grown.get_submodule(path), leaf, nn.Parameter(donor[name].detach(), requires_grad=False))
    return grown.eval()


def _parse(knob: str, n_layers: int) -> tuple[range, str]:
    if not knob.startswith("blocks."):
        name, where = knob, range(n_layers)
    else:
        _, index, *rest = knob.split(".")
        if not index.isdigit() or int(index) >= n_layers:
            raise InputError(f"remove: {knob}: the model has layers 0 to {n_layers - 1}")
        name, where = ".".join(rest) or "layer", range(int(index), int(index) + 1)
    if name not in KNOBS:
        raise InputError(f"remove: {name!r} is not one of {', '.join(KNOBS)}; `blocks.3.ffn` names one layer's")
    return where, name


def _removed(record: Any, where: range, name: str) -> spec.Model:
    if name == "final_norm":
        return record.replace(final_norm=spec.NoNorm())
    blocks = [_block(block, name) if i in where else block for i, block in enumerate(record.blocks)]
    if name == "positions":
        record = record.replace(embedding=record.embedding.replace(positions=spec.NoPositions()))
    return record.replace(layers=tuple(blocks))


def _block(block: spec.Block, name: str) -> spec.Block:
    return block.replace(stages=tuple(_stage(stage, name) for stage in block.stages))


def _stage(stage: spec.Stage, name: str) -> spec.Stage:
    if name == "residual":
        return stage.replace(residual=spec.NoResidual())
    branches = tuple(_branch(branch, name) for branch in stage.branches)
    if name == "norm":
        return stage.replace(branches=branches, norm=spec.NoNorm(), norm_sum=spec.NoNorm())
    return stage.replace(branches=branches)


def _branch(branch: spec.Branch, name: str) -> spec.Branch:
    nothing = {"attn": spec.NoAttention(), "cross": spec.NoCross(), "ffn": spec.NoFeedForward()}
    if name == branch.name or name == "layer":
        return spec.Branch(part=nothing[branch.name])
    if name == "norm":
        return branch.replace(norm_in=spec.NoNorm(), norm_out=spec.NoNorm())
    part = branch.part
    if isinstance(part, ATTENTION):
        return branch.replace(part=_attention(part, name))
    if name == "gate" and isinstance(part, spec.Gated):
        return branch.replace(part=part.replace(activation="removed", alpha=1.0))
    return branch


def _attention(part: Any, name: str) -> Any:
    off: dict[str, Any] = {
        "positions": spec.NoPositions(), "mask": spec.FullMask(), "qk_norm": spec.NoQKNorm(), "scale": 1.0,
        "soft_cap": "none", "sinks": False,
    }  # fmt: skip
    return part.replace(**{name: off[name]}) if name in off and hasattr(part, name) else part
