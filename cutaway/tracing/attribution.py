"""Which part wrote a logit: the stream is a sum, and what reads it last is linear once its norm's scale is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.parts.norms import LayerNorm, RMSNorm
from cutaway.parts.step import NOTHING, Given
from cutaway.tracing.lens import speaking, stack_of
from cutaway.tracing.record import Recording, record
from cutaway.tracing.tables import Table

By = Literal["branch", "head", "neuron"]


@dataclass(frozen=True)
class Attribution:
    """`values` sum to `logit`, that of a token before a soft cap; `labels` name the parts."""

    labels: tuple[str, ...]
    values: Float[Tensor, " P"]
    logit: float

    def table(self, top: int = 20) -> Table:
        """The parts that add most, for or against."""
        order = self.values.abs().argsort(descending=True)[:top].tolist()
        rows = [(self.labels[i], float(self.values[i])) for i in order]
        left = self.logit - sum(row[1] for row in rows)
        note = f"logit {self.logit:.3f}; the other {len(self.labels) - len(rows)} parts add {left:.3f}"
        return Table("What wrote the logit", ("part", "adds"), rows, note, (1,), "bars")


def attribute(
    model: nn.Module, ids: Int[Tensor, "1 T"], token: int | None = None, position: int = -1, by: By = "branch",
    given: Given = NOTHING,
) -> Attribution:  # fmt: skip
    """Direct logit attribution: logit = sum over parts of w . N(part's update), N the final norm with its scale held.

    `token`: by default the likeliest. By `head` an attention is split into its heads (and its bias), by `neuron` a
    feed-forward network into its neurons. (Elhage et al. 2021; Wang et al. 2022, arXiv:2211.00593.)

    Raises InputError where the stream is no plain sum: a norm on it, a branch without residual.
    """
    speaking(model)
    side, prefix = stack_of(model)
    _refuse_other_streams(side.blocks)
    inner = {"branch": [], "head": [f"{prefix}blocks.*.attn.z"], "neuron": [f"{prefix}blocks.*.ffn.hidden"]}[by]
    names = ["embedded", "blocks.*.update", *(["final_norm.scale"] if side.final_norm is not None else [])]
    with torch.no_grad(), record(model, *(prefix + name for name in names), *inner) as run:
        logits = model(ids, given)
    token = int(logits[0, position].argmax()) if token is None else token
    scale = 1.0 if side.final_norm is None else run[f"{prefix}final_norm.scale"][0, position].double()
    reader = _Reader(model.head, side.final_norm, scale, token)
    labels, values = ["embedding"], [reader.of(run[f"{prefix}embedded"][0, position])]
    for i, block in enumerate(side.blocks):
        for stage in block.stages:
            for part in stage.parts:
                name = next(name for name, child in block.named_children() if child is part)
                found = _split(part, run, f"{prefix}blocks.{i}.{name}", by, position)
                labels += [f"blocks.{i}.{name}{label}" for label in found]
                values += [reader.of(x) for x in found.values()]
    labels.append("constants")
    values.append(reader.constant)
    return Attribution(tuple(labels), torch.stack(values), float(torch.stack(values).sum()))


class _Reader:
    """w . N(x) for one token's row w of the head, with the final norm's scale of this position held."""

    def __init__(self, head: nn.Module, norm: nn.Module | None, scale: Tensor | float, token: int) -> None:
        if head.transform is not None:
            raise InputError("attribution: the head transforms the state, so that the logit is no sum of parts")
        table = head.weight if head.tied[0] is None else head.tied[0].weight
        row = table[token].detach().double() * head.input_factor * head.logit_factor
        self.centred = isinstance(norm, LayerNorm)
        self.scale = scale
        gain = torch.ones_like(row)
        if norm is not None and norm.weight is not None:
            gain = norm.weight.detach().double() + (1.0 if isinstance(norm, RMSNorm) and norm.one_plus else 0.0)
        self.row = row * gain
        shift = norm.bias.detach().double() @ row if isinstance(norm, LayerNorm) and norm.bias is not None else 0.0
        bias = 0.0 if head.bias is None else float(head.bias[token]) * head.logit_factor
        self.constant = torch.as_tensor(shift + bias, dtype=torch.float64)

    def of(self, x: Float[Tensor, " D"]) -> Float[Tensor, ""]:
        x = x.double()
        x = x - x.mean() if self.centred else x
        return (x / self.scale) @ self.row


def _split(part: nn.Module, run: Recording, path: str, by: By, position: int) -> dict[str, Tensor]:
    """The update of a branch, or its pieces: their sum is the update."""
    update = run[f"{path}.update"][0, position].double()
    tap, last = {"head": ("z", "o_proj"), "neuron": ("hidden", "down_proj"), "branch": ("", "")}[by]
    plain = part.norm_out is None and part.residual_scale is None
    if not tap or f"{path}.{tap}" not in run or not plain:
        return {"": update}
    weight = getattr(part, last).weight.detach().double()
    if by == "head":
        z = run[f"{path}.z"][0, :, position].double()  # N V
        pieces = torch.einsum("nv,dnv->nd", z, weight.unflatten(1, z.shape))
    else:
        pieces = run[f"{path}.hidden"][0, position].double()[:, None] * weight.T
    found = {f".{by}.{i}": piece for i, piece in enumerate(pieces)}
    rest = update - pieces.sum(0)  # the bias, and what a number times the update leaves
    return found | {".rest": rest}


def _refuse_other_streams(blocks: nn.ModuleList) -> None:
    for i, block in enumerate(blocks):
        for stage in block.stages:
            if not stage.adds or stage.from_normed or stage.parts[0].norm_sum is not None:
                raise InputError(
                    f"attribution: blocks.{i} does not just add to the stream (a norm on the sum, or no residual), so "
                    "that the logit is no sum of parts"
                )
