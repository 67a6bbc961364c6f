"""Mixtral: Llama's blocks with experts, two of them a token (Jiang et al. 2024, arXiv:2401.04088)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.mixture import (
    NAMES,
    TRAINING,
    fused_rules,
    one_mixture,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule

OWN = "model.layers.*.block_sparse_moe"
EACH = {
    "blocks.*.ffn.router": f"{OWN}.gate",
    "blocks.*.ffn.experts.*.gate_proj": f"{OWN}.experts.*.w1",
    "blocks.*.ffn.experts.*.up_proj": f"{OWN}.experts.*.w3",
    "blocks.*.ffn.experts.*.down_proj": f"{OWN}.experts.*.w2",
}


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    window = config.take("sliding_window", None)
    mask = spec.CausalMask() if window is None else spec.SlidingMask(window=window)
    attn = spec.MultiHead(**shape.heads, positions=read_rope(config, shape.head_dim, 1e6), mask=mask)
    ffn = spec.MixtureOfExperts(
        n_experts=config.integer("num_local_experts|num_experts"),
        n_active=config.integer("num_experts_per_tok"),
        expert=read_expert(config, "intermediate_size"),
        load_balance=read_load_balance(config),
    )
    return decoders.decoder(config, [sequential(attn, ffn, norm)] * shape.n_layers, norm)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    ffn = one_mixture(record)
    return decoders.write_decoder(record, "mixtral", "Mixtral") | write_load_balance(ffn) | {
        "rms_norm_eps": decoders.eps_of(record.final_norm),
        "sliding_window": decoders.write_masks(record)["sliding_window"],
        "num_local_experts": ffn.n_experts, "num_experts_per_tok": ffn.n_active,
    }  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; fused experts stand under `mlp`."""
    return table_rules(record, {**NAMES, **EACH}, others=fused_rules(record))


def _renamed(name: str) -> str:
    return name.replace(".block_sparse_moe.", ".mlp.")


FAMILIES = (
    Family(
        ("mixtral",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), _renamed, "model.", TRAINING
    ),
)
