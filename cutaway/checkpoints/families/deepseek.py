"""DeepSeek-V2 and -V3: latent attention, many small experts beside shared ones (arXiv:2405.04434, arXiv:2412.19437)."""

from __future__ import annotations

from functools import partial
from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, first_attention, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.latent import LATENT, read_latent, write_latent
from cutaway.checkpoints.mixture import TRAINING, fused_rules, one_mixture, read_expert
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import Rule
from cutaway.checkpoints.shared_experts import AHEAD, SHARED, read_mixture, read_router, write_mixture

IGNORED = TRAINING | AHEAD | {
    "head_dim": "qk_rope_head_dim says it", "qk_head_dim": "the sum of two others",
    "aux_loss_alpha": "training only", "seq_aux": "training only",
}  # fmt: skip
LEFTOVER = ("*rotary_emb.inv_freq", "layers.61.*")
"""The extra layer of the published checkpoint of 61 stands behind the last one."""


def to_spec(config: Config, old: bool) -> spec.Decoder:
    """config.json to a spec; `old` is V2: softmax scores, groups by their best expert, nothing normalised."""
    n_layers, first = config.integer("num_hidden_layers"), config.integer("first_k_dense_replace", 0 if old else 3)
    attn = read_latent(config, interleaved=old or config.flag("rope_interleave", True))
    norm, bias = spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-6)), old and config.flag("mlp_bias", False)
    config.expect("moe_layer_freq", 1)
    config.expect("pretraining_tp", 1, None)
    if not old:
        config.expect("scoring_func", "sigmoid")
        config.expect("topk_method", "noaux_tc")
    router = _old_router(config) if old else read_router(config, 2.5, 8, 4)
    mixture = read_mixture(config, router, n_shared=2 if old else 1, bias=bias)
    dense = read_expert(config, "intermediate_size", bias)
    blocks = [sequential(attn, dense if i < first else mixture, norm) for i in range(n_layers)]
    return decoders.decoder(config, blocks, norm)


def _old_router(config: Config) -> spec.Router:
    config.expect("scoring_func", "softmax")
    config.expect("norm_topk_prob", False, None)
    router = spec.Router(normalise=False, factor=config.number("routed_scaling_factor", 1.0))
    method = config.choice("topk_method", {"greedy": "greedy", "group_limited_greedy": "groups"}, "greedy")
    groups, active = config.take("n_group", 1), config.take("topk_group", 1)
    return router.replace(n_groups=groups, n_active_groups=active) if method == "groups" else router


def to_config(record: Stack, old: bool) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    attn = first_attention(record, spec.Latent)
    out = decoders.write_decoder(record, *(("deepseek_v2", "DeepseekV2") if old else ("deepseek_v3", "DeepseekV3")))
    out |= write_latent(attn) | write_mixture(record) | {"rms_norm_eps": decoders.eps_of(record.final_norm)}
    if old:
        part = one_mixture(record)
        method = "group_limited_greedy" if part.router.n_groups > 1 else "greedy"
        biased = isinstance(part.shared, spec.SharedExpert) and part.shared.expert.up_bias
        return out | {"mlp_bias": biased, "topk_method": method}
    interleaved = isinstance(attn.positions, spec.RoPE) and attn.positions.layout == "interleaved"
    return out | {"rope_interleave": interleaved, "num_nextn_predict_layers": 0}


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, {**SHARED, **LATENT}, others=fused_rules(record))


def _family(model_type: str, old: bool) -> Family:
    read, write = partial(to_spec, old=old), partial(to_config, old=old)
    return Family((model_type,), spec.Decoder, read, rules, write, LEFTOVER, prefix="model.", ignored_keys=IGNORED)


FAMILIES = (_family("deepseek_v2", True), _family("deepseek_v3", False))
