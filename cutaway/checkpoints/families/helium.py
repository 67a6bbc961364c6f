"""Helium and ERNIE 4.5: as Llama, rotated in neighbouring pairs."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope


def helium_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    bias, ffn_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    return _to_spec(config, 100000.0, decoders.biases_before(bias), ffn_bias, tied=False)


def ernie_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    bias = config.flag("use_bias", False)
    return _to_spec(config, 500000.0, decoders.biases(bias), bias, tied=True)


def _to_spec(config: Config, base: float, bias: decoders.Biases, ffn_bias: bool, tied: bool) -> spec.Decoder:
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps"))
    attn = spec.MultiHead(
        **shape.heads, **bias, positions=read_rope(config, shape.head_dim, base, layout="interleaved")
    )  # fmt: skip
    block = sequential(attn, decoders.read_gated(config, ffn_bias), norm)
    return decoders.decoder(config, [block] * shape.n_layers, norm, spec.LanguageHead(tied=tied))


def helium_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    return _written(record, "helium", "Helium") | {"attention_bias": attn.q_bias, "mlp_bias": ffn.up_bias}


def ernie_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    return _written(record, "ernie4_5", "Ernie4_5") | {"use_bias": attn.q_bias}


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    return decoders.write_decoder(record, model_type, stem) | {"rms_norm_eps": decoders.eps_of(record.final_norm)}


LEFT = ("*rotary_emb.inv_freq",)
FAMILIES = (
    Family(("helium",), spec.Decoder, helium_spec, usual_rules, helium_config, LEFT, prefix="model."),
    Family(("ernie4_5",), spec.Decoder, ernie_spec, usual_rules, ernie_config, LEFT, prefix="model."),
)
