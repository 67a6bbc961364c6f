"""Qwen2: biases on q, k, v (arXiv:2407.10671); Qwen3: none, but a norm on each head of q and k (arXiv:2505.09388)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError


def qwen2_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    return _to_spec(config, lambda eps: decoders.biases(True, "qkv"))


def qwen3_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    bias = decoders.biases(config.flag("attention_bias", False))
    return _to_spec(config, lambda eps: bias | _normed(eps))


def _normed(eps: float) -> dict[str, Any]:
    return {"qk_norm": spec.QKNorm(norm=spec.RMSNorm(eps=eps))}


def _to_spec(config: Config, own: Callable[[float], dict[str, Any]]) -> spec.Model:
    """`own`: the arguments of the attention that the family differs in, by the epsilon."""
    shape, eps = decoders.read_shape(config), config.number("rms_norm_eps")
    rope, ffn, norm = read_rope(config, shape.head_dim), decoders.read_gated(config), spec.RMSNorm(eps=eps)
    blocks = [
        sequential(spec.MultiHead(**shape.heads, **own(eps), mask=mask, positions=rope), ffn, norm)
        for mask in _masks(config, shape.n_layers)
    ]
    return decoders.decoder(config, blocks, norm)


def _masks(config: Config, n_layers: int) -> list[Any]:
    """The window counts only where use_sliding_window is on, and then from layer max_window_layers on."""
    windowed = config.flag("use_sliding_window", False) and config.nullable("sliding_window", 4096) is not None
    first = config.integer("max_window_layers", 28)
    slides = decoders.read_slides(config, n_layers, lambda i: windowed and i >= first)
    if any(slides) and not windowed:
        raise CheckpointError(f"{config.where}: layer_types has sliding layers, but use_sliding_window is off")
    return decoders.read_masks(config, slides)


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, USUAL)


def qwen2_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "qwen2", "Qwen2")


def qwen3_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "qwen3", "Qwen3") | {"attention_bias": decoders.first_parts(record)[0].q_bias}


def _written(record: spec.Model, model_type: str, stem: str) -> dict[str, Any]:
    masks = decoders.write_masks(record)
    return decoders.write_decoder(record, model_type, stem) | masks | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "use_sliding_window": masks["sliding_window"] is not None,
    }  # fmt: skip


def _gguf_spec(config: Config, own: Callable[[float], dict[str, Any]]) -> spec.Model:
    shape, eps = gguf_decoders.read_shape(config), config.number("attention.layer_norm_rms_epsilon")
    attn = spec.MultiHead(**shape.heads, **own(eps), positions=gguf_decoders.read_rope(config, shape.head_dim))
    norm = spec.RMSNorm(eps=eps)
    block = sequential(attn, spec.Gated(d_ff=config.integer("feed_forward_length")), norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm)


def qwen2_gguf(config: Config) -> spec.Model:
    """Keys of a GGUF file to a spec."""
    return _gguf_spec(config, lambda eps: decoders.biases(True, "qkv"))


def qwen3_gguf(config: Config) -> spec.Model:
    """Keys of a GGUF file to a spec."""
    return _gguf_spec(config, _normed)


def gguf_rules(record: spec.Model) -> list[Rule]:
    """Tensor names in GGUF."""
    return table_rules(record, gguf_decoders.GGUF_NAMES)


LEFT = ("*rotary_emb.inv_freq",)
FAMILIES = (
    Family(
        ("qwen2",), qwen2_spec, rules, qwen2_config, LEFT, prefix="model.",
        gguf=(Gguf("qwen2", qwen2_gguf, gguf_rules),),
    ),
    Family(
        ("qwen3",), qwen3_spec, rules, qwen3_config, LEFT, prefix="model.",
        gguf=(Gguf("qwen3", qwen3_gguf, gguf_rules),),
    ),
)  # fmt: skip
