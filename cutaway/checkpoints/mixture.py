"""Mixtures of experts in configurations and tensor names: a matrix each, or one tensor for all experts of a layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.names import USUAL, Names
from cutaway.checkpoints.rules import Rule, Split, Unstack
from cutaway.errors import CheckpointError

GATED = ("gate_proj", "up_proj", "down_proj")
EXPERTS = "model.layers.*.mlp.experts"
NAMES: Names = {
    **USUAL,
    "blocks.*.ffn.router": "model.layers.*.mlp.gate",
    **{f"blocks.*.ffn.experts.*.{name}": f"{EXPERTS}.*.{name}" for name in GATED},
}
"""What most of these families' folders have in common."""

TRAINING = {
    "router_jitter_noise": "training only",
    "router_z_loss_coef": "training only",
    "ep_size": "how experts were spread over machines",
}
"""Keys of mixtures that change nothing at inference."""


def read_expert(config: Config, width: str, bias: bool = False) -> spec.Gated:
    """A gated network, its width under the key `width`."""
    activation = config.choice("hidden_act", ACTIVATIONS, "silu")
    return spec.Gated(
        d_ff=config.integer(width), activation=activation, gate_bias=bias, up_bias=bias, down_bias=bias
    )  # fmt: skip


def read_load_balance(config: Config) -> float:
    """The factor of the auxiliary loss, which is in use only where the router's logits are put out."""
    factor = config.number("router_aux_loss_coef", 0.001)
    return factor if config.flag("output_router_logits", False) else 0.0


def write_load_balance(part: spec.MixtureOfExperts) -> dict[str, Any]:
    """The same two keys; their loss is over all layers together, ours a layer."""
    used = part.load_balance > 0
    return {"output_router_logits": used} | ({"router_aux_loss_coef": part.load_balance} if used else {})


def mixtures(record: Stack) -> Iterator[tuple[int, spec.MixtureOfExperts]]:
    """The layers that have experts, by number."""
    for index, block in enumerate(record.blocks):
        for branch in block.branches:
            if isinstance(branch.part, spec.MixtureOfExperts):
                yield index, branch.part


def one_mixture(record: Stack) -> spec.MixtureOfExperts:
    """The mixture that stands for all in a configuration. Raises CheckpointError where there is none."""
    for _, part in mixtures(record):
        return part
    raise CheckpointError("a model without experts does not fit this family")


def gated_expert(part: spec.MixtureOfExperts) -> spec.Gated:
    """One of its experts. Raises CheckpointError where they are not gated."""
    if isinstance(part.expert, spec.Gated):
        return part.expert
    raise CheckpointError("experts of two matrices do not fit this family")


def dense_layers(record: Stack) -> dict[int, spec.Dense | spec.Gated]:
    """The networks of the layers without experts, by number."""
    return {
        index: branch.part
        for index, block in enumerate(record.blocks)
        for branch in block.branches
        if isinstance(branch.part, (spec.Dense, spec.Gated))
    }


def plain_width(record: Stack) -> int:
    """The width of the networks without experts; where all layers have experts, that of one."""
    return next(iter(dense_layers(record).values()), one_mixture(record).expert).d_ff


def fused_rules(
    record: Stack, inner: str = f"{EXPERTS}.gate_up_proj", outer: str = f"{EXPERTS}.down_proj"
) -> list[Rule]:
    """Gated experts of a layer in two tensors: `inner` [E, 2 F, D] with the gates' rows first, `outer` [E, D, F]."""
    out = []
    for index, part in mixtures(record):
        ours = [f"blocks.{index}.ffn.experts.{number}" for number in range(part.n_experts)]
        first = tuple(f"{expert}.{name}.weight" for expert in ours for name in GATED[:2])
        last = tuple(f"{expert}.down_proj.weight" for expert in ours)
        width = part.expert.d_ff
        out.append(Rule(inner.replace("*", str(index)), first, (Unstack(), Split((width, width)))))
        out.append(Rule(outer.replace("*", str(index)), last, (Unstack(),)))
    return out
