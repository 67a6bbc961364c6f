"""Qwen2: biases on q, k, v (arXiv:2407.10671); Qwen3: none, but a norm on each head of q and k (arXiv:2505.09388)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.errors import CheckpointError


def qwen2_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _to_spec(config, decoders.biases_before(True), normed=False)


def qwen3_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _to_spec(config, decoders.biases(config.flag("attention_bias", False)), normed=True)


def _to_spec(config: Config, bias: decoders.Biases, normed: bool) -> spec.Decoder:
    """`normed`: queries and keys too."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps"))
    rope, ffn = read_rope(config, shape.head_dim), decoders.read_gated(config)
    qk_norm = spec.QKNorm(norm=norm) if normed else spec.NoQKNorm()
    blocks = [
        sequential(spec.MultiHead(**shape.heads, **bias, qk_norm=qk_norm, mask=mask, positions=rope), ffn, norm)
        for mask in _masks(config, shape.n_layers)
    ]
    return decoders.decoder(config, blocks, norm)


def _masks(config: Config, n_layers: int) -> list[spec.CausalMask | spec.SlidingMask]:
    """The window counts only where use_sliding_window is on, and then from layer max_window_layers on."""
    windowed = config.flag("use_sliding_window", False) and config.nullable("sliding_window", 4096) is not None
    first = config.integer("max_window_layers", 28)
    slides = decoders.read_slides(config, n_layers, lambda i: windowed and i >= first)
    if any(slides) and not windowed:
        raise CheckpointError(f"{config.where}: layer_types has sliding layers, but use_sliding_window is off")
    return decoders.read_masks(config, slides)


def qwen2_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "qwen2", "Qwen2")


def qwen3_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "qwen3", "Qwen3") | {"attention_bias": first_parts(record)[0].q_bias}


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    masks = decoders.write_masks(record)
    return decoders.write_decoder(record, model_type, stem) | masks | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "use_sliding_window": masks["sliding_window"] is not None,
    }  # fmt: skip


def _gguf_spec(config: Config, bias: bool, normed: bool) -> spec.Decoder:
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    attn = spec.MultiHead(
        **shape.heads,
        **decoders.biases_before(bias),
        qk_norm=spec.QKNorm(norm=norm) if normed else spec.NoQKNorm(),
        positions=gguf_decoders.read_rope(config, shape.head_dim),
    )
    block = sequential(attn, spec.Gated(d_ff=config.integer("feed_forward_length")), norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm)


def qwen2_gguf(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    return _gguf_spec(config, bias=True, normed=False)


def qwen3_gguf(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    return _gguf_spec(config, bias=False, normed=True)


LEFT = ("*rotary_emb.inv_freq",)
FAMILIES = (
    Family(
        ("qwen2",), spec.Decoder, qwen2_spec, usual_rules, qwen2_config, LEFT, prefix="model.",
        gguf=(Gguf("qwen2", qwen2_gguf, gguf_decoders.usual_rules),),
    ),
    Family(
        ("qwen3",), spec.Decoder, qwen3_spec, usual_rules, qwen3_config, LEFT, prefix="model.",
        gguf=(Gguf("qwen3", qwen3_gguf, gguf_decoders.usual_rules),),
    ),
)  # fmt: skip
