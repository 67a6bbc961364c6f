"""Command R: attention and network side by side behind one LayerNorm without shift, rotation in neighbouring pairs.

Command R7B (`cohere2`): layers with a sliding window rotate, the others have no positions.
"""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import parallel
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Reshape, Rule


def cohere_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-5), shift=False)
    qk_norm: Any = spec.NoQKNorm()
    if config.flag("use_qk_norm", False):
        qk_norm = spec.QKNorm(norm=norm, gain="per_head")
    attn = spec.MultiHead(
        **shape.heads, **decoders.biases(config.flag("attention_bias", False)), qk_norm=qk_norm,
        positions=read_rope(config, shape.head_dim, 500000.0, "interleaved"),
    )  # fmt: skip
    block = parallel(attn, decoders.read_gated(config), norm)
    return decoders.decoder(config, [block] * shape.n_layers, norm, _head(config))


def cohere2_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.LayerNorm(eps=config.number("layer_norm_eps", 1e-5), shift=False)
    pattern = config.integer("sliding_window_pattern|_sliding_window_pattern", 4)
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


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names; gains of a head each stand as [heads, head_dim]."""
    n = spec.sizes(decoders.first_parts(record)[0], record.d_model)
    names = USUAL | {"blocks.*.attn.norm": "model.layers.*.input_layernorm"}
    gains = {
        f"blocks.*.attn.{name}": (Reshape((heads, n.head_dim), (heads, 1, n.head_dim)),)
        for name, heads in (("q_norm", n.n_heads), ("k_norm", n.n_kv_heads))
    }
    return table_rules(record, names, gains)


def cohere_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = decoders.first_parts(record)
    return _written(record, "cohere", "Cohere") | {"use_qk_norm": isinstance(attn.qk_norm, spec.QKNorm)}


def cohere2_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json."""
    return _written(record, "cohere2", "Cohere2") | decoders.write_masks(record, record.context_length)


def _written(record: spec.Model, model_type: str, stem: str) -> dict[str, Any]:
    attn, _ = decoders.first_parts(record)
    return decoders.write_decoder(record, model_type, stem) | {
        "layer_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "logit_scale": record.head.logit_factor if isinstance(record.head, spec.LanguageHead) else 1.0,
    }  # fmt: skip


IGNORED = {"model_max_length": "the tokenizer's"}
FAMILIES = (
    Family(("cohere",), cohere_spec, rules, cohere_config, ("*rotary_emb.inv_freq",), prefix="model.",
           ignored_keys=IGNORED),
    Family(("cohere2",), cohere2_spec, rules, cohere2_config, ("*rotary_emb.inv_freq",), prefix="model.",
           ignored_keys=IGNORED),
)  # fmt: skip
