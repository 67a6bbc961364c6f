"""GLM-4.5: half of a head rotated, many small experts beside a shared one (2025, arXiv:2508.06471)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, first_attention, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.mixture import TRAINING, fused_rules, read_expert
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule
from cutaway.checkpoints.shared_experts import AHEAD, SHARED, read_mixture, read_router, write_mixture

LEFTOVER = ("*rotary_emb.inv_freq", "layers.46.*", "layers.92.*")
"""The extra layers of the two published checkpoints stand behind their last one."""


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, first = decoders.read_shape(config), config.integer("first_k_dense_replace", 1)
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    attn = spec.MultiHead(
        **shape.heads,
        positions=read_rope(config, shape.head_dim, share=0.5),
        qk_norm=spec.QKNorm(norm=norm) if config.flag("use_qk_norm", False) else spec.NoQKNorm(),
        **decoders.biases_before(config.flag("attention_bias", False)),
    )
    mixture, dense = read_mixture(config, read_router(config, 1.0, 1, 1)), read_expert(config, "intermediate_size")
    blocks = [sequential(attn, dense if i < first else mixture, norm) for i in range(shape.n_layers)]
    return decoders.decoder(config, blocks, norm)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    attn = first_attention(record, spec.MultiHead)
    out = decoders.write_decoder(record, "glm4_moe", "Glm4Moe") | write_mixture(record)
    out["rope_parameters"].setdefault("partial_rotary_factor", 1.0)
    return out | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "use_qk_norm": isinstance(attn.qk_norm, spec.QKNorm), "num_nextn_predict_layers": 0,
    }  # fmt: skip


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, SHARED, others=fused_rules(record))


FAMILIES = (
    Family(
        ("glm4_moe",), spec.Decoder, to_spec, rules, to_config, LEFTOVER, prefix="model.", ignored_keys=TRAINING | AHEAD
    ),
)
