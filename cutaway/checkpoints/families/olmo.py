"""OLMo: LayerNorm without weights and clipped q, k, v (arXiv:2402.00838).

OLMo 2: RMSNorm after each branch, and on q and k over their whole width (arXiv:2501.00656). OLMo 3: three layers of
four have a sliding window and a rotation of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_parts, output_norm, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope, read_ropes
from cutaway.checkpoints.rules import Rule
from cutaway.spec.attention import Mask


def olmo_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.LayerNorm(eps=1e-5, gain=False, shift=False)
    clip = config.nullable("clip_qkv", None)
    attn = spec.MultiHead(
        **shape.heads, **decoders.biases(config.flag("attention_bias", False)),
        positions=read_rope(config, shape.head_dim), clip="none" if clip is None else config.number("clip_qkv"),
    )  # fmt: skip
    return decoders.decoder(config, [sequential(attn, decoders.read_gated(config), norm)] * shape.n_layers, norm)


def olmo2_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape = decoders.read_shape(config)
    rope = read_rope(config, shape.head_dim)
    return _normed_after(config, [(spec.CausalMask(), rope)] * shape.n_layers)


def olmo3_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape = decoders.read_shape(config)
    full, local = read_ropes(config, shape.head_dim, "rope_theta", (500000.0, 500000.0))
    slides = decoders.read_slides(config, shape.n_layers, lambda i: (i + 1) % 4 != 0)
    masks = decoders.read_masks(config, slides)
    return _normed_after(config, [(mask, local if slide else full) for mask, slide in zip(masks, slides, strict=True)])


def _normed_after(config: Config, layers: Sequence[tuple[Mask, spec.RoPE]]) -> spec.Decoder:
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps"))
    bias, ffn = decoders.biases(config.flag("attention_bias", False)), decoders.read_gated(config)
    qk_norm = spec.QKNorm(norm=norm, over="width")
    blocks = [
        output_norm(spec.MultiHead(**shape.heads, **bias, qk_norm=qk_norm, mask=mask, positions=rope), ffn, norm)
        for mask, rope in layers
    ]
    return decoders.decoder(config, blocks, norm)


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    after = {
        "blocks.*.attn.norm_out": "model.layers.*.post_attention_layernorm",
        "blocks.*.ffn.norm_out": "model.layers.*.post_feedforward_layernorm",
    }
    return table_rules(record, {**USUAL, **after})


def olmo_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    return decoders.write_decoder(record, "olmo", "Olmo") | {
        "attention_bias": attn.q_bias, "clip_qkv": None if attn.clip == "none" else attn.clip,
    }  # fmt: skip


def olmo2_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "olmo2", "Olmo2")


def olmo3_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return (
        _written(record, "olmo3", "Olmo3")
        | decoders.write_masks(record, record.context_length)
        | decoders.write_ropes(record)
    )


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    attn, _ = first_parts(record)
    return decoders.write_decoder(record, model_type, stem) | {
        "attention_bias": attn.q_bias, "rms_norm_eps": decoders.eps_of(record.final_norm),
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file, OLMo 3's if it has a window, to a spec; the sliding layers are rotated without scaling."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    full, window = gguf_decoders.read_rope(config, shape.head_dim), config.integer("attention.sliding_window", 0)
    local, qk_norm = full.replace(scaling=spec.NoScaling()), spec.QKNorm(norm=norm, over="width")
    config.expect("rope.freq_base_swa", full.base)
    blocks = []
    for slides in gguf_decoders.read_slides(config, shape.n_layers, 4):
        near = slides and window > 0
        attn = spec.MultiHead(
            **shape.heads, qk_norm=qk_norm, positions=local if near else full,
            mask=spec.SlidingMask(window=window) if near else spec.CausalMask(),
        )  # fmt: skip
        blocks.append(output_norm(attn, gguf_decoders.read_gated(config), norm))
    return gguf_decoders.decoder(config, blocks, norm)


def gguf_keys(record: Stack) -> dict[str, Any]:
    """A spec to keys of a GGUF file."""
    return gguf_decoders.full_keys(record) | gguf_decoders.write_slides(record, 4)


LEFT = ("*rotary_emb.inv_freq",)
FILES = (Gguf("olmo2", gguf_spec, gguf_decoders.after_rules, gguf_keys),)
FAMILIES = (
    Family(("olmo",), spec.Decoder, olmo_spec, rules, olmo_config, LEFT, prefix="model."),
    Family(("olmo2",), spec.Decoder, olmo2_spec, rules, olmo2_config, LEFT, prefix="model.", gguf=FILES),
    Family(("olmo3",), spec.Decoder, olmo3_spec, rules, olmo3_config, LEFT, prefix="model."),
)
