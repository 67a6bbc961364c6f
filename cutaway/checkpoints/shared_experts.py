"""Many small experts beside shared ones, behind a few layers without experts: what configurations of such models share.

(Dai et al. 2024, arXiv:2401.06066; DeepSeek-V3 2024, arXiv:2412.19437.)
"""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.mixture import (
    GATED,
    NAMES,
    dense_layers,
    one_mixture,
    plain_width,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import Names

SHARED: Names = {
    **NAMES,
    "blocks.*.ffn.router.choice_bias": "model.layers.*.mlp.gate.e_score_correction_bias",
    **{f"blocks.*.ffn.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}" for name in GATED},
}
AHEAD = dict.fromkeys(
    ("num_nextn_predict_layers", "num_mtp_layers"), "extra layers that guess further tokens are not loaded"
)
"""Keys to ignore."""


def read_router(config: Config, factor: float, n_groups: int, n_active_groups: int) -> spec.Router:
    """Sigmoid scores, a bias that picks, groups by their best two; the numbers are a family's own defaults."""
    return spec.Router(
        score="sigmoid", choice_bias=True, group_score="top2",
        normalise=config.flag("norm_topk_prob", True), factor=config.number("routed_scaling_factor", factor),
        n_groups=config.integer("n_group", n_groups), n_active_groups=config.integer("topk_group", n_active_groups),
    )  # fmt: skip


def read_mixture(config: Config, router: spec.Router, n_shared: int = 1, bias: bool = False) -> spec.MixtureOfExperts:
    """The mixture; n shared experts side by side are one that is n times as wide, and only they may have biases."""
    expert, n = read_expert(config, "moe_intermediate_size"), config.nullable("n_shared_experts", n_shared)
    return spec.MixtureOfExperts(
        n_experts=config.integer("n_routed_experts|num_local_experts|num_experts"),
        n_active=config.integer("num_experts_per_tok"),
        expert=expert,
        router=router,
        shared=spec.SharedExpert(expert=wider(expert, n, bias)) if n else spec.NoSharedExpert(),
        load_balance=read_load_balance(config),
    )


def write_mixture(record: Stack) -> dict[str, Any]:
    """The keys that `read_mixture` and `read_router` take, and those of the layers without experts."""
    part, dense = one_mixture(record), dense_layers(record)
    return write_load_balance(part) | {
        "intermediate_size": plain_width(record), "first_k_dense_replace": len(dense),
        "n_routed_experts": part.n_experts, "num_experts_per_tok": part.n_active,
        "moe_intermediate_size": part.expert.d_ff, "n_shared_experts": n_shared_experts(part),
        "n_group": part.router.n_groups, "topk_group": part.router.n_active_groups,
        "norm_topk_prob": part.router.normalise, "routed_scaling_factor": part.router.factor,
    }  # fmt: skip


def wider(expert: spec.Gated, times: int, bias: bool) -> spec.Gated:
    """`times` experts side by side."""
    return expert.replace(d_ff=times * expert.d_ff, gate_bias=bias, up_bias=bias, down_bias=bias)


def n_shared_experts(part: spec.MixtureOfExperts) -> int:
    """How many experts' widths the shared one has."""
    return part.shared.expert.d_ff // part.expert.d_ff if isinstance(part.shared, spec.SharedExpert) else 0
