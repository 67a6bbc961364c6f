"""gpt-oss: attention sinks, every other layer sliding, experts with a clamped SwiGLU (2025, arXiv:2508.10925)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders, gguf_mixture
from cutaway.checkpoints.blocks import Stack, first_attention, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.mixture import (
    GATED,
    TRAINING,
    gated_expert,
    mixtures,
    one_mixture,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule, Strided, Transpose, Unstack

ROPE = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
"""What its own software takes where a configuration has no scaling of RoPE."""

NAMES = {
    **USUAL,
    "blocks.*.attn.sinks": "model.layers.*.self_attn.sinks",
    "blocks.*.ffn.router": "model.layers.*.mlp.router",
}


def _expert(width: int) -> spec.Gated:
    return spec.Gated(
        d_ff=width, clamp=7.0, alpha=1.702, up_offset=1.0, gate_bias=True, up_bias=True, down_bias=True
    )  # fmt: skip


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    if not config.has("rope_scaling"):
        config.assume("rope_parameters", ROPE)
    attn = spec.MultiHead(
        **shape.heads,
        positions=read_rope(config, shape.head_dim, 150000.0),
        sinks=True,
        **decoders.biases(config.flag("attention_bias", True)),
    )
    config.expect("hidden_act", "silu")
    ffn = spec.MixtureOfExperts(
        n_experts=config.integer("num_local_experts|num_experts"),
        n_active=config.integer("num_experts_per_tok"),
        expert=_expert(config.integer("intermediate_size")).replace(
            clamp=config.number("swiglu_limit", 7.0), alpha=config.number("swiglu_alpha", 1.702)
        ),
        router=spec.Router(score="softmax_after", bias=True),
        load_balance=read_load_balance(config),
    )  # fmt: skip
    masks = decoders.read_masks(config, decoders.read_slides(config, shape.n_layers, lambda i: i % 2 == 0))
    return decoders.decoder(config, [sequential(attn.replace(mask=mask), ffn, norm) for mask in masks], norm)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    attn, ffn = first_attention(record, spec.MultiHead), one_mixture(record)
    out, masks = decoders.write_decoder(record, "gpt_oss", "GptOss"), decoders.write_masks(record)
    expert = gated_expert(ffn)
    return out | write_load_balance(ffn) | masks | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "num_local_experts": ffn.n_experts, "num_experts_per_tok": ffn.n_active,
        "sliding_window": masks["sliding_window"] or 128,  # their software wants one even if no layer slides
        "swiglu_limit": expert.clamp, "swiglu_alpha": expert.alpha,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; YaRN's range is not rounded, though llama.cpp does so in all its models."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    rope, window = gguf_decoders.read_rope(config, shape.head_dim), config.integer("attention.sliding_window")
    if isinstance(rope.scaling, spec.YarnScaling):
        rope = rope.replace(scaling=rope.scaling.replace(truncate=False))
    attn = spec.MultiHead(**shape.heads, positions=rope, sinks=True, **decoders.biases(True))
    config.expect("tied", False)
    expert = _expert(config.integer("expert_feed_forward_length"))
    ffn = gguf_mixture.read_mixture(config, expert, router=spec.Router(score="softmax_after", bias=True))
    masks = {True: spec.SlidingMask(window=window), False: spec.CausalMask()}
    slides = gguf_decoders.read_slides(config, shape.n_layers, 2)
    return gguf_decoders.decoder(config, [sequential(attn.replace(mask=masks[s]), ffn, norm) for s in slides], norm)


def gguf_keys(record: Stack) -> dict[str, Any]:
    """A spec to keys of a GGUF file; a window must be there even if no layer slides."""
    return {"attention.sliding_window": 128} | standard_keys(record) | gguf_decoders.write_slides(record, 2)


def gguf_rules(record: Stack) -> list[Rule]:
    """Tensor names in GGUF."""
    own = {"blocks.*.attn.sinks": "blk.*.attn_sinks.weight", "blocks.*.ffn.norm_in": "blk.*.post_attention_norm"}
    return gguf_mixture.mixture_rules(record, own)


def rules(record: Stack) -> list[Rule]:
    """Their tensor names; experts [E, D, 2 F] with gate and up in turn, and [E, F, D]. Packed ones are read alike."""
    experts = []
    for index, part in mixtures(record):
        theirs = f"model.layers.{index}.mlp.experts"
        ours = [f"blocks.{index}.ffn.experts.{number}" for number in range(part.n_experts)]
        for kind, end, first in (("weight", "", (Transpose(),)), ("bias", "_bias", ())):
            inner = tuple(f"{expert}.{name}.{kind}" for expert in ours for name in GATED[:2])
            outer = tuple(f"{expert}.down_proj.{kind}" for expert in ours)
            experts.append(Rule(f"{theirs}.gate_up_proj{end}", inner, (*first, Unstack(), Strided())))
            experts.append(Rule(f"{theirs}.down_proj{end}", outer, (*first, Unstack())))
    return table_rules(record, NAMES, others=experts)


FAMILIES = (
    Family(
        ("gpt_oss",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        ignored_keys=TRAINING | {
            "experts_per_token": "num_experts_per_tok is read",
            "initial_context_length": "the scaling of RoPE holds it",
        },
        gguf=(Gguf("gpt-oss", gguf_spec, gguf_rules, gguf_keys),),
    ),
)  # fmt: skip
