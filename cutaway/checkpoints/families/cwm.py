"""Code World Model: as Llama 3, with a sliding window in three layers of four, the first of each four being full."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps"))
    config.expect("attention_bias", False)
    config.take("rope_parameters|rope_scaling")  # their software would take Llama 3's in silence
    rope, ffn = read_rope(config, shape.head_dim, 1e6), decoders.read_gated(config, config.flag("mlp_bias", False))
    slides = decoders.read_slides(config, shape.n_layers, lambda i: i % 4 != 0)
    blocks = [
        sequential(spec.MultiHead(**shape.heads, mask=mask, positions=rope), ffn, norm)
        for mask in decoders.read_masks(config, slides)
    ]
    return decoders.decoder(config, blocks, norm)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    _, ffn = first_parts(record)
    masks = decoders.write_masks(record, record.context_length)
    return decoders.write_decoder(record, "cwm", "Cwm") | masks | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "mlp_bias": ffn.up_bias,
    }  # fmt: skip


LEFT = ("*rotary_emb.inv_freq",)
FAMILIES = (Family(("cwm",), spec.Decoder, to_spec, usual_rules, to_config, LEFT, prefix="model."),)
