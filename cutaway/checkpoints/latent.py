"""Multi-head latent attention in configurations and tensor names."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.names import Names
from cutaway.checkpoints.rope_config import read_rope, write_rope
from cutaway.errors import CheckpointError

LATENT: Names = {
    "blocks.*.attn.q_down": "model.layers.*.self_attn.q_a_proj",
    "blocks.*.attn.q_norm": "model.layers.*.self_attn.q_a_layernorm",
    "blocks.*.attn.q_up": "model.layers.*.self_attn.q_b_proj",
    "blocks.*.attn.kv_down": "model.layers.*.self_attn.kv_a_proj_with_mqa",
    "blocks.*.attn.kv_norm": "model.layers.*.self_attn.kv_a_layernorm",
    "blocks.*.attn.kv_up": "model.layers.*.self_attn.kv_b_proj",
}
"""The matrices and norms of the latents; q_proj and o_proj have their usual names."""


def read_latent(config: Config, interleaved: bool) -> spec.Latent:
    """The record; with YaRN's `mscale_all_dim` the scale holds the square of that factor."""
    n_heads, plain = config.integer("num_attention_heads"), config.integer("qk_nope_head_dim")
    turned, flag = config.integer("qk_rope_head_dim"), config.flag("attention_bias", False)
    config.expect("num_key_value_heads", n_heads, None)
    rope = read_rope(config, turned, layout="interleaved" if interleaved else "halves")
    scaling = rope.scaling
    factor = spec.yarn_mscale(scaling.factor, scaling.mscale_all_dim) if isinstance(scaling, spec.YarnScaling) else 1.0
    norm = spec.RMSNorm(eps=1e-6)  # rms_norm_eps is not read here
    return spec.Latent(
        n_heads=n_heads,
        q_rank=config.nullable("q_lora_rank", 1536) or "none",
        kv_rank=config.integer("kv_lora_rank"),
        nope_dim=plain, rope_dim=turned, value_dim=config.integer("v_head_dim"),
        positions=rope,
        scale="auto" if factor == 1 else (plain + turned) ** -0.5 * factor**2,
        q_norm=norm, kv_norm=norm, down_bias=flag, o_bias=flag,
    )  # fmt: skip


def write_latent(part: spec.Latent) -> dict[str, Any]:
    """The same keys; the scale follows from the rest."""
    if not isinstance(part.positions, spec.RoPE):
        raise CheckpointError("latent attention without a rotation does not fit this family")
    return {
        "head_dim": part.rope_dim, "qk_nope_head_dim": part.nope_dim, "qk_rope_head_dim": part.rope_dim,
        "v_head_dim": part.value_dim, "kv_lora_rank": part.kv_rank, "attention_bias": part.o_bias,
        "q_lora_rank": None if part.q_rank == "none" else part.q_rank,
        "rope_parameters": write_rope(part.positions, part.rope_dim),
    }  # fmt: skip
