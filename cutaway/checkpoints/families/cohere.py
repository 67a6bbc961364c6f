"""Command R: attention and network side by side behind one LayerNorm without shift, rotation in neighbouring pairs.

Command R7B (`cohere2`): layers with a sliding window rotate, the others have no positions.
"""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_parts, first_sizes, parallel
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_decoders import GGUF_NAMES
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Reshape, Rule


def cohere_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-5), shift=False)
    attn = spec.MultiHead(
        **shape.heads, **decoders.biases(config.flag("attention_bias", False)),
        qk_norm=spec.QKNorm(norm=norm, gain="per_head") if config.flag("use_qk_norm", False) else spec.NoQKNorm(),
        positions=read_rope(config, shape.head_dim, 500000.0, "interleaved"),
    )  # fmt: skip
    block = parallel(attn, decoders.read_gated(config), norm)
    return decoders.decoder(config, [block] * shape.n_layers, norm, _head(config))


def cohere2_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-5), shift=False)
    pattern = config.integer("sliding_window_pattern|_sliding_window_pattern", 4)
    config.expect("_sliding_window_pattern", pattern, None)
    masks = decoders.read_masks(config, decoders.read_slides(config, shape.n_layers, lambda i: (i + 1) % pattern != 0))
    bias, ffn = decoders.biases(config.flag("attention_bias", False)), decoders.read_gated(config)
    rope = read_rope(config, shape.head_dim, layout="interleaved")
    for key, value in AS_BUILT.items():
        config.expect(key, value)
    blocks = []
    for mask in masks:
        positions = rope if isinstance(mask, spec.SlidingMask) else spec.NoPositions()
        blocks.append(parallel(spec.MultiHead(**shape.heads, **bias, mask=mask, positions=positions), ffn, norm))
    return decoders.decoder(config, blocks, norm, _head(config))


AS_BUILT = {
    "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj", "rotary_pct": 1.0,
    "use_embedding_sharing": True, "use_gated_activation": True, "use_parallel_block": True,
    "use_parallel_embedding": True, "use_qk_norm": False,
}  # fmt: skip
"""What some files say of the architecture, which has it built in."""


def _head(config: Config) -> spec.LanguageHead:
    return spec.LanguageHead(logit_factor=config.number("logit_scale", 0.0625))


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, {**USUAL, "blocks.*.attn.norm": "model.layers.*.input_layernorm"}, _gains(record))


def _gains(record: Stack) -> dict[str, tuple[Reshape]]:
    """Gains of a head each stand as [heads, head_dim]."""
    n = first_sizes(record)
    return {
        f"blocks.*.attn.{name}": (Reshape((heads, n.head_dim), (heads, 1, n.head_dim)),)
        for name, heads in (("q_norm", n.n_heads), ("k_norm", n.n_kv_heads))
    }


def cohere_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    return _written(record, "cohere", "Cohere") | {"use_qk_norm": isinstance(attn.qk_norm, spec.QKNorm)}


def cohere2_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "cohere2", "Cohere2") | decoders.write_masks(record, record.context_length)


def _written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    attn, _ = first_parts(record)
    return decoders.write_decoder(record, model_type, stem) | {
        "layer_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "logit_scale": record.head.logit_factor if isinstance(record.head, spec.LanguageHead) else 1.0,
    }  # fmt: skip


def cohere_gguf(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, norm = gguf_decoders.read_shape(config), _gguf_norm(config)
    normed = config.holds("blk.0.attn_q_norm.weight", False)
    attn = spec.MultiHead(
        **shape.heads, **gguf_decoders.read_biases(config),
        qk_norm=spec.QKNorm(norm=norm, gain="per_head") if normed else spec.NoQKNorm(),
        positions=gguf_decoders.read_rope(config, shape.head_dim, "interleaved"),
    )  # fmt: skip
    block = parallel(attn, gguf_decoders.read_gated(config), norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm, _gguf_head(config))


def cohere2_gguf(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, norm, ffn = gguf_decoders.read_shape(config), _gguf_norm(config), gguf_decoders.read_gated(config)
    rope = gguf_decoders.read_rope(config, shape.head_dim, "interleaved")
    config.expect("rope.freq_base_swa", rope.base)
    window, blocks = spec.SlidingMask(window=config.integer("attention.sliding_window")), []
    for slides in gguf_decoders.read_slides(config, shape.n_layers, 4):
        mask, positions = (window, rope) if slides else (spec.CausalMask(), spec.NoPositions())
        blocks.append(parallel(spec.MultiHead(**shape.heads, mask=mask, positions=positions), ffn, norm))
    return gguf_decoders.decoder(config, blocks, norm, _gguf_head(config))


def cohere2_keys(record: Stack) -> dict[str, Any]:
    """A spec to keys of a GGUF file."""
    return standard_keys(record) | gguf_decoders.write_slides(record, 4)


def _gguf_norm(config: Config) -> spec.LayerNorm:
    return spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"), shift=False)


def _gguf_head(config: Config) -> spec.LanguageHead:
    return spec.LanguageHead(logit_factor=config.number("logit_scale", 0.0) or 1.0)


def gguf_rules(record: Stack) -> list[Rule]:
    """Tensor names in GGUF."""
    return table_rules(record, {**GGUF_NAMES, "blocks.*.attn.norm": "blk.*.attn_norm"}, _gains(record))


LEFT, IGNORED = ("*rotary_emb.inv_freq",), {"model_max_length": "the tokenizer's"}
FAMILIES = (
    Family(("cohere",), spec.Decoder, cohere_spec, rules, cohere_config, LEFT, prefix="model.", ignored_keys=IGNORED,
           gguf=(Gguf("command-r", cohere_gguf, gguf_rules),)),
    Family(("cohere2",), spec.Decoder, cohere2_spec, rules, cohere2_config, LEFT, prefix="model.", ignored_keys=IGNORED,
           gguf=(Gguf("cohere2", cohere2_gguf, gguf_rules, cohere2_keys),)),
)  # fmt: skip
