"""ERNIE 4.5 with experts: softmax scores, a bias that picks, shared experts (Baidu 2025)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, first_attention, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.mixture import (
    TRAINING,
    fused_rules,
    mixtures,
    one_mixture,
    plain_width,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Reshape, Rule
from cutaway.checkpoints.shared_experts import AHEAD, SHARED, n_shared_experts, wider
from cutaway.errors import CheckpointError

BIAS = "blocks.*.ffn.router.choice_bias"
NAMES = {**SHARED, BIAS: "model.layers.*.mlp.moe_statics.e_score_correction_bias"}
IGNORED = TRAINING | AHEAD | {"moe_capacity": "training only", "moe_use_aux_free": "the stored bias says it"}


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, bias = decoders.read_shape(config), config.flag("use_bias", False)
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    rope = read_rope(config, shape.head_dim, 500000.0, layout="interleaved")
    attn = spec.MultiHead(**shape.heads, positions=rope, **decoders.biases(bias))
    config.expect("moe_gate", "topk")
    if config.number("moe_norm_min", 1e-12) > 1e-9:
        raise CheckpointError(f"{config.where}: moe_norm_min is above 1e-9, a bound that is not supported")
    expert, n_shared = read_expert(config, "moe_intermediate_size"), config.integer("moe_num_shared_experts", 2)
    mixture = spec.MixtureOfExperts(
        n_experts=config.integer("moe_num_experts|num_experts"),
        n_active=config.integer("moe_k|num_experts_per_tok"),
        expert=expert,
        router=spec.Router(choice_bias=True),
        shared=spec.SharedExpert(expert=wider(expert, n_shared, bias)) if n_shared else spec.NoSharedExpert(),
        load_balance=read_load_balance(config),
    )
    first, last = config.integer("moe_layer_start_index", 1), config.integer("moe_layer_end_index", -1)
    step, dense = config.integer("moe_layer_interval", 1), read_expert(config, "intermediate_size", bias)
    chosen = range(first, shape.n_layers if last == -1 else last + 1)
    ffns = [mixture if i in chosen and (i + 1) % step == 0 else dense for i in range(shape.n_layers)]
    head = spec.LanguageHead(tied=True, bias=bias)
    return decoders.decoder(config, [sequential(attn, ffn, norm) for ffn in ffns], norm, head)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    attn, part = first_attention(record, spec.MultiHead), one_mixture(record)
    layers = [index for index, _ in mixtures(record)]
    out = decoders.write_decoder(record, "ernie4_5_moe", "Ernie4_5_Moe") | write_load_balance(part)
    return out | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "use_bias": attn.q_bias, "moe_k": part.n_active,
        "moe_num_experts": part.n_experts, "moe_num_shared_experts": n_shared_experts(part),
        "intermediate_size": plain_width(record), "moe_intermediate_size": part.expert.d_ff,
        "moe_layer_start_index": layers[0], "moe_layer_end_index": layers[-1],
        "moe_layer_interval": layers[1] - layers[0] if len(layers) > 1 else 1,
    }  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; the bias has one group."""
    n = one_mixture(record).n_experts
    return table_rules(record, NAMES, {BIAS: (Reshape((1, n), (n,)),)}, others=fused_rules(record))


def _renamed(name: str) -> str:
    return name.replace(".mlp.gate.moe_statics.", ".mlp.moe_statics.")


FAMILIES = (
    Family(
        ("ernie4_5_moe",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq", "*mtp_*"), _renamed,
        "model.", IGNORED,
    ),
)  # fmt: skip
