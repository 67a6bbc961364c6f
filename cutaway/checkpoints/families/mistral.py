"""Mistral: as Llama, with a sliding window in every layer (arXiv:2310.06825); Ministral: in some."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, windowed = decoders.read_shape(config), config.nullable("sliding_window") is not None
    slides = decoders.read_slides(config, shape.n_layers, lambda i: windowed)
    if any(slides) and not windowed:
        raise CheckpointError(f"{config.where}: layer_types has sliding layers, but sliding_window is null")
    rope, ffn = read_rope(config, shape.head_dim), decoders.read_gated(config)
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    blocks = [
        sequential(spec.MultiHead(**shape.heads, mask=mask, positions=rope), ffn, norm)
        for mask in decoders.read_masks(config, slides)
    ]
    return decoders.decoder(config, blocks, norm)


def mistral_spec(config: Config) -> spec.Decoder:
    """As `to_spec`; the window is every layer's, whatever else `layer_types` would say."""
    windowed = config.nullable("sliding_window") is not None
    if config.has("layer_types"):
        kinds = config.take("layer_types")
        config.expect("layer_types", [decoders.SLIDING if windowed else decoders.FULL] * len(kinds))
    return to_spec(config)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "mistral", "Mistral") | {"sliding_window": decoders.write_masks(record)["sliding_window"]}


def ministral_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "ministral", "Ministral") | decoders.write_masks(record, record.context_length)


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    return decoders.write_decoder(record, model_type, stem) | {"rms_norm_eps": decoders.eps_of(record.final_norm)}


LEFT = ("*rotary_emb.inv_freq",)
FAMILIES = (
    Family(("mistral",), spec.Decoder, mistral_spec, usual_rules, to_config, LEFT, prefix="model."),
    Family(("ministral",), spec.Decoder, to_spec, usual_rules, ministral_config, LEFT, prefix="model."),
)
