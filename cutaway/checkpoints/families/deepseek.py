"""DeepSeek-V2 and -V3: latent attention, many small experts beside shared ones (arXiv:2405.04434, arXiv:2412.19437)."""

from __future__ import annotations

from functools import partial
from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.latent import LATENT, read_latent, write_latent
from cutaway.checkpoints.mixture import (
    GATED,
    NAMES,
    TRAINING,
    dense_layers,
    fused_rules,
    one_mixture,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import Rule

OWN = {
    **NAMES, **LATENT,
    "blocks.*.ffn.router.choice_bias": "model.layers.*.mlp.gate.e_score_correction_bias",
    **{f"blocks.*.ffn.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}" for name in GATED},
}  # fmt: skip
IGNORED = TRAINING | {
    "head_dim": "qk_rope_head_dim says it", "qk_head_dim": "the sum of two others",
    "aux_loss_alpha": "training only", "seq_aux": "training only",
    "num_nextn_predict_layers": "extra layers that guess ahead are not loaded",
    "num_mtp_layers": "extra layers that guess ahead are not loaded",
}  # fmt: skip
LEFTOVER = ("*rotary_emb.inv_freq", "layers.61.*")
"""The extra layer of the published checkpoint of 61 stands behind the last one."""


def to_spec(config: Config, old: bool) -> spec.Model:
    """config.json to a spec; `old` is V2: softmax scores, groups by their best expert, nothing normalised."""
    n_layers, first = config.integer("num_hidden_layers"), config.integer("first_k_dense_replace", 0 if old else 3)
    attn = read_latent(config, interleaved=old or config.flag("rope_interleave", True))
    norm, bias = spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-6)), old and config.flag("mlp_bias", False)
    config.expect("moe_layer_freq", 1)
    config.expect("pretraining_tp", 1, None)
    expert, n_shared = (
        read_expert(config, "moe_intermediate_size"),
        config.nullable("n_shared_experts", 2 if old else 1),
    )
    wide = expert.replace(d_ff=expert.d_ff * (n_shared or 1), gate_bias=bias, up_bias=bias, down_bias=bias)
    mixture = spec.MixtureOfExperts(
        n_experts=config.integer("n_routed_experts|num_local_experts|num_experts"),
        n_active=config.integer("num_experts_per_tok"),
        expert=expert,
        router=_old_router(config) if old else _router(config),
        shared=spec.SharedExpert(expert=wide) if n_shared else spec.NoSharedExpert(),
        load_balance=read_load_balance(config),
    )
    dense = read_expert(config, "intermediate_size", bias)
    blocks = [sequential(attn, dense if i < first else mixture, norm) for i in range(n_layers)]
    return decoders.decoder(config, blocks, norm)


def _router(config: Config) -> spec.Router:
    config.expect("scoring_func", "sigmoid")
    config.expect("topk_method", "noaux_tc")
    return spec.Router(
        score="sigmoid", choice_bias=True, group_score="top2",
        normalise=config.flag("norm_topk_prob", True), factor=config.number("routed_scaling_factor", 2.5),
        n_groups=config.integer("n_group", 8), n_active_groups=config.integer("topk_group", 4),
    )  # fmt: skip


def _old_router(config: Config) -> spec.Router:
    config.expect("scoring_func", "softmax")
    config.expect("norm_topk_prob", False, None)
    router = spec.Router(normalise=False, factor=config.number("routed_scaling_factor", 1.0))
    method = config.choice("topk_method", {"greedy": "greedy", "group_limited_greedy": "groups"}, "greedy")
    groups, active = config.take("n_group", 1), config.take("topk_group", 1)
    return router.replace(n_groups=groups, n_active_groups=active) if method == "groups" else router


def to_config(record: spec.Model, old: bool) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    (attn, _), mixture, dense = (
        decoders.first_parts(record, spec.Latent, decoders.WITH_EXPERTS),
        one_mixture(record),
        dense_layers(record),
    )
    router, shared = mixture.router, mixture.shared
    wide = shared.expert if isinstance(shared, spec.SharedExpert) else mixture.expert.replace(d_ff=0)
    out = decoders.write_decoder(record, *(("deepseek_v2", "DeepseekV2") if old else ("deepseek_v3", "DeepseekV3")))
    if dense:
        out["intermediate_size"] = record.blocks[dense[0]].branches[1].part.d_ff
    out |= write_latent(attn) | write_load_balance(mixture) | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "first_k_dense_replace": len(dense),
        "n_routed_experts": mixture.n_experts, "num_experts_per_tok": mixture.n_active,
        "moe_intermediate_size": mixture.expert.d_ff, "n_shared_experts": wide.d_ff // mixture.expert.d_ff,
        "n_group": router.n_groups, "topk_group": router.n_active_groups,
        "norm_topk_prob": router.normalise, "routed_scaling_factor": router.factor,
    }  # fmt: skip
    if old:
        return out | {
            "mlp_bias": wide.up_bias,
            "topk_method": "group_limited_greedy" if router.n_groups > 1 else "greedy",
        }
    return out | {"rope_interleave": attn.positions.layout == "interleaved", "num_nextn_predict_layers": 0}


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, OWN, others=fused_rules(record))


def _family(model_type: str, old: bool) -> Family:
    read, write = partial(to_spec, old=old), partial(to_config, old=old)
    return Family((model_type,), read, rules, write, LEFTOVER, prefix="model.", ignored_keys=IGNORED)


FAMILIES = (_family("deepseek_v2", True), _family("deepseek_v3", False))
