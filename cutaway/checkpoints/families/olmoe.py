"""OLMoE: 64 small experts, queries and keys normalised over their whole width (arXiv:2409.02060)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders, gguf_mixture
from cutaway.checkpoints.blocks import Stack, first_attention, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.mixture import (
    NAMES,
    TRAINING,
    fused_rules,
    one_mixture,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, norm = decoders.read_shape(config), spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-5))
    config.expect("head_dim", shape.d_model // shape.n_heads, None)
    clip = config.take("clip_qkv", None)
    attn = spec.MultiHead(
        **shape.heads,
        positions=read_rope(config, shape.head_dim),
        qk_norm=spec.QKNorm(norm=norm, over="width"),
        clip="none" if clip is None else float(clip),
        **decoders.biases(config.flag("attention_bias", False)),
    )
    ffn = spec.MixtureOfExperts(
        n_experts=config.integer("num_experts|num_local_experts"),
        n_active=config.integer("num_experts_per_tok"),
        expert=read_expert(config, "intermediate_size"),
        router=spec.Router(normalise=config.flag("norm_topk_prob", False)),
        load_balance=read_load_balance(config),
    )
    return decoders.decoder(config, [sequential(attn, ffn, norm)] * shape.n_layers, norm)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    attn, ffn = first_attention(record, spec.MultiHead), one_mixture(record)
    return decoders.write_decoder(record, "olmoe", "Olmoe") | write_load_balance(ffn) | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "clip_qkv": None if attn.clip == "none" else attn.clip, "num_experts": ffn.n_experts,
        "num_experts_per_tok": ffn.n_active, "norm_topk_prob": ffn.router.normalise,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; the weights of experts are not normalised."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    attn = spec.MultiHead(
        **shape.heads,
        positions=gguf_decoders.read_rope(config, shape.head_dim),
        qk_norm=spec.QKNorm(norm=norm, over="width"),
    )
    config.expect("tied", False)
    expert, router = spec.Gated(d_ff=config.integer("feed_forward_length")), spec.Router(normalise=False)
    ffn = gguf_mixture.read_mixture(config, expert, router=router)
    return gguf_decoders.decoder(config, [sequential(attn, ffn, norm)] * shape.n_layers, norm)


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, NAMES, others=fused_rules(record))


FAMILIES = (
    Family(
        ("olmoe",), spec.Decoder, to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        ignored_keys=TRAINING, gguf=(Gguf("olmoe", gguf_spec, gguf_mixture.mixture_rules, gguf_mixture.mixture_keys),),
    ),
)  # fmt: skip
