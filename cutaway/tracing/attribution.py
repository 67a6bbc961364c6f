"""Which part wrote a logit: the stream is a sum, and what reads it last is linear once its norm's scale is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.models import Transformer
from cutaway.parts.attention import Cross, MultiHead
from cutaway.parts.block import Block
from cutaway.parts.feedforward import Dense, Gated
from cutaway.parts.head import TokenHead
from cutaway.parts.latent_attention import Latent
from cutaway.parts.norms import LayerNorm
from cutaway.parts.residual import Stage, norm_of
from cutaway.tracing.prompt import Prompt, check_asked, check_one_row
from cutaway.tracing.record import Recording, record
from cutaway.tracing.stacks import Held, blocks_of, factor_of, stack_of, writing
from cutaway.tracing.tables import Table

By = Literal["branch", "head", "neuron"]
SPLIT: dict[By, tuple[type[nn.Module], ...]] = {
    "branch": (), "head": (MultiHead, Latent, Cross), "neuron": (Dense, Gated),
}  # fmt: skip
"""Which parts are split into their heads or neurons."""


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


@torch.no_grad()
def attribute(
    model: Transformer, prompt: Prompt, token: int | None = None, position: int = -1, by: By = "branch"
) -> Attribution:
    """Direct logit attribution: logit = sum over parts of w . N(part's update), N the final norm with its scale held.

    `token`: by default the likeliest. By `head` an attention is split into its heads, by `neuron` a feed-forward
    network into its neurons, and a `rest` (biases); a norm on the branch has its scale held too. A layer of experts
    stays whole. (Elhage et al. 2021; Wang et al. 2022, arXiv:2211.00593.)

    Raises InputError where the stream is no plain sum (a norm on it, a branch without residual), where no part can be
    split so, for a token or position that is not there, and for more than one row.
    """
    check_one_row(prompt)
    check_asked(model, prompt, position, token)
    stack, prefix = stack_of(model)
    blocks = blocks_of(stack)
    _refuse_other_streams(blocks)
    branches = [_Branch(f"blocks.{i}.{name}", stage, part, by) for i, block in enumerate(blocks)
                for stage in block.stages for name, part in _named(block, stage)]  # fmt: skip
    if by != "branch" and not any(branch.taps for branch in branches):
        raise InputError(f"attribution: no part of the model is split by {by}; attribute by branch")
    names = ["embedded", *(["final_norm.scale"] if stack.final_norm is not None else [])]
    names += [f"{branch.name}.{tap}" for branch in branches for tap in ("update", *branch.taps)]
    with record(model, *(prefix + name for name in names)) as run:
        logits = prompt.run(model)
    here = _Here(run, prefix, position)
    token = int(logits[0, position].argmax()) if token is None else token
    reader = _Reader(model.head, stack.final_norm, here, token)
    labels, values = ["embedding"], [reader.of(here["embedded"])[None]]
    for branch in branches:
        pieces = branch.pieces(here)
        labels += [branch.name + label for label in branch.labels(len(pieces))]
        values.append(reader.of(pieces))
    parts = torch.cat([*values, reader.constant[None]])
    return Attribution((*labels, "constants"), parts, float(parts.sum()))


class _Here:
    """What was recorded of one token of the first row, in float64."""

    def __init__(self, run: Recording, prefix: str, position: int) -> None:
        self.run, self.prefix, self.position = run, prefix, position

    def __getitem__(self, name: str) -> Tensor:
        return self.run[self.prefix + name][0].select(-2, self.position).double()


class _Reader:
    """w . N(x) for one token's row w of the head, with the final norm's scale of this position held."""

    def __init__(self, head: nn.Module, norm: nn.Module | None, here: _Here, token: int) -> None:
        assert isinstance(head, TokenHead)
        if head.transform is not None:
            raise InputError("attribution: the head transforms the state, so that the logit is no sum of parts")
        table = head.weight if head.tied[0] is None else head.tied[0].weight
        assert table is not None
        self.row = table[token].double() * head.input_factor * head.logit_factor
        self.norm = Held(norm, None if norm is None else here["final_norm.scale"])
        shift = norm.bias.double() @ self.row if isinstance(norm, LayerNorm) and norm.bias is not None else 0.0
        bias = 0.0 if head.bias is None else float(head.bias[token]) * head.logit_factor
        self.constant = torch.as_tensor(shift + bias, dtype=torch.float64, device=table.device)

    def of(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
        return self.norm(x) @ self.row


class _Branch:
    """A branch and the taps that its update is put together from."""

    def __init__(self, name: str, stage: Stage, part: nn.Module, by: By) -> None:
        self.name, self.stage, self.part, self.by = name, stage, part, by
        self.taps: list[str] = []
        if isinstance(part, SPLIT[by]):
            gated = isinstance(part, MultiHead) and part.gate_width > 0
            self.taps = ["hidden"] if by == "neuron" else ["z", "gate"] if gated else ["z"]
            self.taps += ["norm_out.scale"] if norm_of(part, "norm_out") is not None else []

    def pieces(self, here: _Here) -> Float[Tensor, "P D"]:
        """The update [1 D], or what each head or neuron adds and the rest of it: their sum is the update."""
        update = here[f"{self.name}.update"]
        if not self.taps:
            return update[None]
        out = here[f"{self.name}.{self.taps[0]}"]
        out = out * here[f"{self.name}.gate"] if "gate" in self.taps else out
        out = out[:, None] if out.dim() == 1 else out  # N V, of neurons N 1
        scale = here[f"{self.name}.norm_out.scale"] if "norm_out.scale" in self.taps else None
        norm = Held(norm_of(self.part, "norm_out"), scale)
        pieces = norm(torch.einsum("nv,nvd->nd", out, writing(self.part).double())) * factor_of(self.stage, self.part)
        return torch.cat((pieces, (update - pieces.sum(0))[None]))

    def labels(self, n: int) -> list[str]:
        return [*(f".{self.by}.{i}" for i in range(n - 1)), ".rest"] if self.taps else [""]


def _named(block: Block, stage: Stage) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a stage with their names in the block."""
    return ((name, part) for name, part in block.named_children() if any(part is each for each in stage.parts))


def _refuse_other_streams(blocks: Sequence[Block]) -> None:
    for i, block in enumerate(blocks):
        for stage in block.stages:
            if not stage.plain_sum:
                raise InputError(
                    f"attribution: blocks.{i} does not just add to the stream (a norm on the sum, or no residual), so "
                    "that the logit is no sum of parts"
                )
