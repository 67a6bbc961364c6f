"""Mixtures of experts in GGUF files: their keys, and tensors that hold one matrix of all experts of a layer."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.gguf_decoders import GGUF_NAMES
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.mixture import gated_expert, mixtures
from cutaway.checkpoints.names import Names, table_rules
from cutaway.checkpoints.rules import Op, Reshape, Rule, Unstack
from cutaway.spec.feedforward import Shared

PARTS = ("gate", "up", "down")
NAMES: Names = {
    **GGUF_NAMES,
    "blocks.*.ffn.router": "blk.*.ffn_gate_inp",
    "blocks.*.ffn.shared_gate": "blk.*.ffn_gate_inp_shexp",
    **{f"blocks.*.ffn.shared.{name}_proj": f"blk.*.ffn_{name}_shexp" for name in PARTS},
}


def read_mixture(
    config: Config, expert: spec.Gated, router: spec.Router = spec.Router(), shared: Shared = spec.NoSharedExpert()
) -> spec.MixtureOfExperts:
    """The mixture of a file with such experts."""
    n_experts, n_active = config.integer("expert_count"), config.integer("expert_used_count")
    return spec.MixtureOfExperts(n_experts=n_experts, n_active=n_active, expert=expert, router=router, shared=shared)


def read_width(config: Config) -> int:
    """The width of experts: of its own, or the usual one shared out among the active ones."""
    shared_out = config.integer("feed_forward_length") // config.integer("expert_used_count")
    return config.integer("expert_feed_forward_length", shared_out)


def mixture_keys(record: Stack) -> dict[str, Any]:
    """The standard keys; experts' width has a name of its own, and where all layers have experts the usual one too."""
    widths = [part.expert.d_ff for _, part in mixtures(record)]
    return ({"feed_forward_length": widths[0]} if widths else {}) | standard_keys(record)


def mixture_rules(
    record: Stack, names: Names | None = None, ops: dict[str, tuple[Op, ...]] | None = None
) -> list[Rule]:
    """Tensor names: `ffn_gate_exps` [E, F, D] and so on; `names` are an architecture's own beside the usual ones."""
    row = {"blocks.*.ffn.shared_gate": (Reshape((record.d_model,), (1, record.d_model)),)}
    return table_rules(record, {**NAMES, **(names or {})}, {**row, **(ops or {})}, others=_experts(record))


def _experts(record: Stack) -> list[Rule]:
    out = []
    for index, part in mixtures(record):
        expert = gated_expert(part)
        biases = {"gate": expert.gate_bias, "up": expert.up_bias, "down": expert.down_bias}
        for name in PARTS:
            for leaf in ("weight", "bias") if biases[name] else ("weight",):
                experts = (f"blocks.{index}.ffn.experts.{number}" for number in range(part.n_experts))
                ours = tuple(f"{expert}.{name}_proj.{leaf}" for expert in experts)
                out.append(Rule(f"blk.{index}.ffn_{name}_exps.{leaf}", ours, (Unstack(),)))
    return out
