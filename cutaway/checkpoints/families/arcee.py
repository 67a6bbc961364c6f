"""Arcee (AFM): as Llama, with a network of two matrices and a squared ReLU; Jais 2: the same with LayerNorm."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.activations import ACTIVATIONS
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.spec.norms import Norm


def arcee_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _to_spec(config, spec.RMSNorm(eps=config.number("rms_norm_eps")), bias=False)


def jais2_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _to_spec(config, spec.LayerNorm(eps=config.number("layer_norm_eps")), bias=True)


def _to_spec(config: Config, norm: Norm, bias: bool) -> spec.Decoder:
    shape, ffn_bias = decoders.read_shape(config), config.flag("mlp_bias", bias)
    attn = spec.MultiHead(
        **shape.heads,
        **decoders.biases(config.flag("attention_bias", bias)),
        positions=read_rope(config, shape.head_dim),
    )
    ffn = spec.Dense(
        d_ff=config.integer("intermediate_size"),
        activation=config.choice("hidden_act", ACTIVATIONS),
        up_bias=ffn_bias, down_bias=ffn_bias,
    )  # fmt: skip
    return decoders.decoder(config, [sequential(attn, ffn, norm)] * shape.n_layers, norm)


def arcee_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "arcee", "Arcee") | {"rms_norm_eps": decoders.eps_of(record.final_norm)}


def jais2_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "jais2", "Jais2") | {"layer_norm_eps": decoders.eps_of(record.final_norm)}


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    attn, ffn = first_parts(record)
    return decoders.write_decoder(record, model_type, stem) | {"attention_bias": attn.q_bias, "mlp_bias": ffn.up_bias}


FAMILIES = (
    Family(("arcee",), spec.Decoder, arcee_spec, usual_rules, arcee_config, ("*rotary_emb.inv_freq",), prefix="model."),
    Family(("jais2",), spec.Decoder, jais2_spec, usual_rules, jais2_config, ("*rotary_emb.inv_freq",), prefix="model."),
)
