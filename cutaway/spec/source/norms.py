"""Norms: torch's own where it has them, a class of a few lines where not."""

from __future__ import annotations

from typing import Any

from cutaway.spec.norms import LayerNorm, NoNorm, RMSNorm
from cutaway.spec.source.writing import File, module, number

Norm = NoNorm | LayerNorm | RMSNorm


def norm(file: File, record: Norm, width: int, heads: int = 0) -> str | None:
    """The expression that makes a norm over `width` numbers, with own weights for each of `heads` heads; None: none."""
    match record:
        case LayerNorm():
            return _layer_norm(file, record, width, heads)
        case RMSNorm():
            return _rms_norm(file, record, width, heads)
    return None


def norms(file: File, width: int, **records: Any) -> list[str]:
    """The attributes of those norms that are there."""
    made = {name: norm(file, record, width) for name, record in records.items()}
    return [f"self.{name} = {make}" for name, make in made.items() if make is not None]


def _layer_norm(file: File, record: LayerNorm, width: int, heads: int) -> str:
    learned = {"weight": record.gain, "bias": record.shift}
    eps = f"eps={number(record.eps)}"
    if not any(learned.values()):
        return f"nn.LayerNorm({width}, {eps}, elementwise_affine=False)"
    if not heads and record.gain:
        return f"nn.LayerNorm({width}, {eps}{'' if record.shift else ', bias=False'})"
    attributes = ["self.eps = eps"]
    attributes += ["self.weight = nn.Parameter(torch.ones(shape))"] if record.gain else []
    attributes += ["self.bias = nn.Parameter(torch.zeros(shape))"] if record.shift else []
    result = "x" + (" * self.weight" if record.gain else "") + (" + self.bias" if record.shift else "")
    text = module(
        "Layer norm" + (", its weights a row for each head." if heads else " that learns a shift alone."), attributes,
        ["x = F.layer_norm(x, x.shape[-1:], eps=self.eps)", f"return {result}"], init="shape, eps",
    )  # fmt: skip
    mark = file.define(text, "HeadNorm" if heads else "ShiftNorm", "HeadLayerNorm" if heads else "ShiftNorm")
    return f"{mark}({_shape(width, heads)}, {eps})"


def _rms_norm(file: File, record: RMSNorm, width: int, heads: int) -> str:
    eps = f"eps={number(record.eps)}"
    if record.gain == "none":
        return f"nn.RMSNorm({width}, {eps}, elementwise_affine=False)"
    if not heads and record.gain == "plain":
        return f"nn.RMSNorm({width}, {eps})"
    one = record.gain == "one_plus"
    doc = "RMS norm" + (" that learns gain - 1" if one else "") + (", a row of weights for each head" if heads else "")
    text = module(
        f"{doc}.", ["self.eps = eps", f"self.weight = nn.Parameter(torch.{'zeros' if one else 'ones'}(shape))"],
        ["x = F.rms_norm(x, x.shape[-1:], eps=self.eps)", f"return x * {'(1 + ' * one}self.weight{')' * one}"],
        init="shape, eps",
    )  # fmt: skip
    mark = file.define(text, "HeadNorm" if heads else "RMSNorm", "HeadRMSNorm" if heads else "RMSNorm")
    return f"{mark}({_shape(width, heads)}, {eps})"


def _shape(width: int, heads: int) -> str:
    return f"({heads}, 1, {width})" if heads else str(width)
