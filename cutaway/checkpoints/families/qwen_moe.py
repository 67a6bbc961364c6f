"""Qwen's mixtures: Qwen2-MoE with a gated shared expert (arXiv:2407.10671), Qwen3-MoE without (arXiv:2505.09388)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders, gguf_mixture
from cutaway.checkpoints.blocks import Stack, first_attention, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.mixture import (
    GATED,
    NAMES,
    TRAINING,
    dense_layers,
    fused_rules,
    one_mixture,
    plain_width,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule
from cutaway.errors import CheckpointError
from cutaway.spec.feedforward import Shared

SHARED = {
    "blocks.*.ffn.shared_gate": "model.layers.*.mlp.shared_expert_gate",
    **{f"blocks.*.ffn.shared.{name}": f"model.layers.*.mlp.shared_expert.{name}" for name in GATED},
}
IGNORED = TRAINING | {"max_window_layers": "read only with use_sliding_window", "sliding_window": "not in use"}


def qwen2_spec(config: Config) -> spec.Decoder:
    """config.json of the second generation to a spec; every other layer slides, where any does."""
    shape, slides = decoders.read_shape(config), config.flag("use_sliding_window", False)
    last = config.integer("max_window_layers", 28) if slides else 0
    slid = decoders.read_slides(config, shape.n_layers, lambda i: i % 2 == 0 and i < last)
    if any(slid) and not slides:
        raise CheckpointError(f"{config.where}: layer_types has sliding layers, but use_sliding_window is false")
    bias = decoders.biases_before(config.flag("qkv_bias", True))
    attn = spec.MultiHead(**shape.heads, positions=read_rope(config, shape.head_dim), **bias)
    shared = spec.SharedExpert(expert=read_expert(config, "shared_expert_intermediate_size"), gated=True)
    return _decoder(config, [attn.replace(mask=mask) for mask in decoders.read_masks(config, slid)], shared)


def qwen3_spec(config: Config) -> spec.Decoder:
    """config.json of the third generation to a spec: q and k normalised, all layers slide or none."""
    shape, slides = decoders.read_shape(config), config.flag("use_sliding_window", False)
    window = config.take("sliding_window", None) if slides else None
    attn = spec.MultiHead(
        **shape.heads,
        positions=read_rope(config, shape.head_dim),
        mask=spec.CausalMask() if window is None else spec.SlidingMask(window=window),
        qk_norm=spec.QKNorm(norm=spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-6))),
        **decoders.biases(config.flag("attention_bias", False)),
    )
    return _decoder(config, [attn] * shape.n_layers, spec.NoSharedExpert())


def _decoder(config: Config, attns: list[spec.MultiHead], shared: Shared) -> spec.Decoder:
    """A mixture in every decoder_sparse_step-th layer but those of mlp_only_layers."""
    n_experts, step = config.integer("num_experts|num_local_experts"), config.integer("decoder_sparse_step", 1)
    only_dense, norm = config.take("mlp_only_layers", None) or [], spec.RMSNorm(eps=config.number("rms_norm_eps", 1e-6))
    mixture = spec.MixtureOfExperts(
        n_experts=max(n_experts, 1),
        n_active=config.integer("num_experts_per_tok"),
        expert=read_expert(config, "moe_intermediate_size"),
        router=spec.Router(normalise=config.flag("norm_topk_prob", False)),
        shared=shared,
        load_balance=read_load_balance(config),
    )
    dense = read_expert(config, "intermediate_size")
    ffns = [mixture if n_experts and i not in only_dense and (i + 1) % step == 0 else dense for i in range(len(attns))]
    return decoders.decoder(config, [sequential(*parts, norm) for parts in zip(attns, ffns, strict=True)], norm)


def _config(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    """What both generations share."""
    mixture = one_mixture(record)
    return decoders.write_decoder(record, model_type, stem) | write_load_balance(mixture) | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "num_experts": mixture.n_experts,
        "num_experts_per_tok": mixture.n_active, "intermediate_size": plain_width(record),
        "moe_intermediate_size": mixture.expert.d_ff, "norm_topk_prob": mixture.router.normalise,
        "decoder_sparse_step": 1, "mlp_only_layers": list(dense_layers(record)),
    }  # fmt: skip


def qwen2_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    out = _config(record, "qwen2_moe", "Qwen2Moe")
    shared, masks = one_mixture(record).shared, decoders.write_masks(record)
    if not isinstance(shared, spec.SharedExpert):
        raise CheckpointError("experts without a shared one do not fit this family")
    return out | masks | {
        "use_sliding_window": masks["sliding_window"] is not None,
        "qkv_bias": first_attention(record, spec.MultiHead).q_bias,
        "shared_expert_intermediate_size": shared.expert.d_ff,
    }  # fmt: skip


def qwen3_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    out = _config(record, "qwen3_moe", "Qwen3Moe")
    window = decoders.write_masks(record)["sliding_window"]
    return out | {
        "attention_bias": first_attention(record, spec.MultiHead).q_bias,
        "use_sliding_window": window is not None, "sliding_window": window,
    }  # fmt: skip


def qwen2_gguf(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; all layers have experts, and their weights are not normalised."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    rope, usual = gguf_decoders.read_rope(config, shape.head_dim), config.integer("feed_forward_length")
    attn = spec.MultiHead(**shape.heads, **decoders.biases_before(True), positions=rope)
    expert = spec.Gated(d_ff=config.integer("expert_shared_feed_forward_length", usual))
    config.expect("tied", False)  # llama.cpp wants a matrix of its own
    shared, router = spec.SharedExpert(expert=expert, gated=True), spec.Router(normalise=False)
    ffn = gguf_mixture.read_mixture(config, spec.Gated(d_ff=gguf_mixture.read_width(config)), router, shared)
    return gguf_decoders.decoder(config, [sequential(attn, ffn, norm)] * shape.n_layers, norm)


def qwen3_gguf(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; all layers have experts, and their weights are normalised."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    rope, qk_norm = gguf_decoders.read_rope(config, shape.head_dim), spec.QKNorm(norm=norm)
    ffn = gguf_mixture.read_mixture(config, spec.Gated(d_ff=gguf_mixture.read_width(config)))
    block = sequential(spec.MultiHead(**shape.heads, positions=rope, qk_norm=qk_norm), ffn, norm)
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm)


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, {**NAMES, **SHARED}, others=fused_rules(record))


LEFT = ("*rotary_emb.inv_freq",)
FILES = (gguf_mixture.mixture_rules, gguf_mixture.mixture_keys)
FAMILIES = (
    Family(("qwen2_moe",), spec.Decoder, qwen2_spec, rules, qwen2_config, LEFT, prefix="model.", ignored_keys=IGNORED,
           gguf=(Gguf("qwen2moe", qwen2_gguf, *FILES),)),
    Family(("qwen3_moe",), spec.Decoder, qwen3_spec, rules, qwen3_config, LEFT, prefix="model.", ignored_keys=IGNORED,
           gguf=(Gguf("qwen3moe", qwen3_gguf, *FILES),)),
)  # fmt: skip
