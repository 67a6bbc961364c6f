"""GLM-4: half of a head rotated in neighbouring pairs, gate and up in one matrix (arXiv:2406.12793).

The later release of the name (`glm4`) has norms after each branch as well.
"""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Build, Stack, first_parts, sandwich, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def glm_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _to_spec(config, sequential)


def glm4_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _to_spec(config, sandwich)


def _to_spec(config: Config, block: Build) -> spec.Decoder:
    shape, bias = decoders.read_shape(config), config.flag("attention_bias", True)
    rope = read_rope(config, shape.head_dim, layout="interleaved", share=0.5)
    attn = spec.MultiHead(**shape.heads, **decoders.biases_before(bias), positions=rope)
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    return decoders.decoder(config, [block(attn, decoders.read_gated(config), norm)] * shape.n_layers, norm)


NAMES = {
    **USUAL,
    "blocks.*.attn.norm_out": "model.layers.*.post_self_attn_layernorm",
    "blocks.*.ffn.norm_out": "model.layers.*.post_mlp_layernorm",
    "blocks.*.ffn.gate_proj": "model.layers.*.mlp.gate_up_proj",
    "blocks.*.ffn.up_proj": "model.layers.*.mlp.gate_up_proj",
}


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES)


def glm_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "glm", "Glm")


def glm4_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "glm4", "Glm4")


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    attn, _ = first_parts(record)
    out = decoders.write_decoder(record, model_type, stem)
    out["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
    return out | {"rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias}


FAMILIES = (
    Family(("glm",), spec.Decoder, glm_spec, rules, glm_config, ("*rotary_emb.inv_freq",), prefix="model."),
    Family(("glm4",), spec.Decoder, glm4_spec, rules, glm4_config, ("*rotary_emb.inv_freq",), prefix="model."),
)
