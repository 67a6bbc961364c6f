"""EXAONE 4.0: a norm after each branch and on each head of q and k; of its layers one in four sees all, unrotated.

(arXiv:2507.11407.) A model without a window rotates in every layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import Stack, output_norm
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps"))
    windowed = config.nullable("sliding_window", 4096) is not None
    slides = decoders.read_slides(config, shape.n_layers, _rule(config, windowed))
    if any(slides) and not windowed:
        raise CheckpointError(f"{config.where}: layer_types has sliding layers, but sliding_window is null")
    rope, ffn = read_rope(config, shape.head_dim), decoders.read_gated(config)
    blocks = []
    for mask, slide in zip(decoders.read_masks(config, slides), slides, strict=True):
        positions = rope if slide or not windowed else spec.NoPositions()
        qk_norm = spec.QKNorm(norm=norm)
        blocks.append(
            output_norm(spec.MultiHead(**shape.heads, mask=mask, positions=positions, qk_norm=qk_norm), ffn, norm)
        )
    return decoders.decoder(config, blocks, norm)


def _rule(config: Config, windowed: bool) -> Callable[[int], bool]:
    """Which layers slide: all but every n-th, or those with an L in a word such as LLLG."""
    pattern = config.nullable("sliding_window_pattern", 4)
    if not windowed:
        return lambda i: False
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        return lambda i: pattern[i % len(pattern)] == "L"
    if isinstance(pattern, int) and pattern > 0:
        return lambda i: (i + 1) % pattern != 0
    raise CheckpointError(f"{config.where}: sliding_window_pattern is {pattern!r}, expected a number or L's and G's")


NAMES = {
    **USUAL,
    "blocks.*.attn.norm_out": "model.layers.*.post_attention_layernorm",
    "blocks.*.ffn.norm_out": "model.layers.*.post_feedforward_layernorm",
}


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    rotates = all(isinstance(attn.positions, spec.RoPE) for attn in spec.attentions(record.blocks))
    masks = decoders.write_masks(record, None if rotates else record.context_length)
    return decoders.write_decoder(record, "exaone4", "Exaone4") | masks | {
        "rms_norm_eps": decoders.eps_of(record.final_norm),
    }  # fmt: skip


FAMILIES = (Family(("exaone4",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model."),)
