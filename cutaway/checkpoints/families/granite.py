"""Granite, dense or with experts: as Llama, with a factor on the embedding, the scores, each branch and the logits."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_attention, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_keys import standard_keys
from cutaway.checkpoints.mixture import (
    TRAINING,
    fused_rules,
    one_mixture,
    read_expert,
    read_load_balance,
    write_load_balance,
)
from cutaway.checkpoints.names import USUAL, table_rules, usual_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule

EXPERTS = "model.layers.*.block_sparse_moe"


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _decoder(config, decoders.read_gated(config, config.flag("mlp_bias", False)))


def mixture_spec(config: Config) -> spec.Decoder:
    """config.json to a spec with experts, weighed by a softmax over the chosen alone."""
    ffn = spec.MixtureOfExperts(
        n_experts=config.integer("num_local_experts|num_experts"),
        n_active=config.integer("num_experts_per_tok"),
        expert=read_expert(config, "intermediate_size"),
        router=spec.Router(score="softmax_after"),
        load_balance=read_load_balance(config),
    )
    return _decoder(config, ffn)


def _decoder(config: Config, ffn: spec.Gated | spec.MixtureOfExperts) -> spec.Decoder:
    """attention_multiplier is the whole factor on the scores."""
    shape, scale = decoders.read_shape(config), config.number("attention_multiplier", 1.0)
    attn = spec.MultiHead(
        **shape.heads, **decoders.biases(config.flag("attention_bias", False)),
        positions=read_rope(config, shape.head_dim), scale="auto" if scale == shape.head_dim**-0.5 else scale,
    )  # fmt: skip
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    residual = spec.Add(scale=config.number("residual_multiplier", 1.0))
    stages = (stage.replace(residual=residual) for stage in sequential(attn, ffn, norm).stages)
    head = spec.LanguageHead(tied=False, logit_factor=1 / config.number("logits_scaling", 1.0))
    embedding = spec.TokenEmbedding(factor=config.number("embedding_multiplier", 1.0))
    return decoders.decoder(config, [spec.Block(stages=tuple(stages))] * shape.n_layers, norm, head, embedding)


def mixture_rules(record: Stack) -> list[Rule]:
    """Their tensor names; the experts of a layer stand in two tensors."""
    names = {**USUAL, "blocks.*.ffn.router": f"{EXPERTS}.router.layer"}
    files = fused_rules(record, f"{EXPERTS}.input_linear.weight", f"{EXPERTS}.output_linear.weight")
    classes = fused_rules(record, f"{EXPERTS}.experts.gate_up_proj", f"{EXPERTS}.experts.down_proj")
    return table_rules(record, names, others=files + classes)


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    _, ffn = first_parts(record)
    return decoders.write_decoder(record, "granite", "Granite") | _multipliers(record) | {"mlp_bias": ffn.up_bias}


def mixture_config(record: Stack) -> dict[str, Any]:
    """A spec with experts to config.json."""
    part = one_mixture(record)
    out = decoders.write_decoder(record, "granitemoe", "GraniteMoe") | _multipliers(record) | write_load_balance(part)
    return out | {"num_local_experts": part.n_experts, "num_experts_per_tok": part.n_active}


def _multipliers(record: Stack) -> dict[str, Any]:
    attn = first_attention(record, spec.MultiHead)
    residual, head = record.blocks[0].stages[0].residual, record.head
    return {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
        "embedding_multiplier": record.embedding.factor,
        "attention_multiplier": spec.sizes(attn, record.d_model).scale,
        "residual_multiplier": residual.scale if isinstance(residual, spec.Add) else None,
        "logits_scaling": 1 / head.logit_factor if isinstance(head, spec.LanguageHead) else 1.0,
    }  # fmt: skip


def _renamed(name: str) -> str:
    return name.replace(".router.layer.", ".router.")


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec; a scale of 0 is the usual one, and the logits are divided by theirs."""
    shape, scale = gguf_decoders.read_shape(config), config.number("attention.scale", 0.0)
    attn = spec.MultiHead(
        **shape.heads, **gguf_decoders.read_biases(config), scale=scale or "auto",
        positions=gguf_decoders.read_rope(config, shape.head_dim),
    )  # fmt: skip
    norm = spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    residual = spec.Add(scale=config.number("residual_scale", 1.0))
    stages = sequential(attn, gguf_decoders.read_gated(config), norm).stages
    block = spec.Block(stages=tuple(stage.replace(residual=residual) for stage in stages))
    head = spec.LanguageHead(logit_factor=1 / config.number("logit_scale"))
    embedding = spec.TokenEmbedding(factor=config.number("embedding_scale", 1.0))
    return gguf_decoders.decoder(config, [block] * shape.n_layers, norm, head, embedding)


def gguf_keys(record: Stack) -> dict[str, Any]:
    """A spec to keys of a GGUF file."""
    factor = record.head.logit_factor if isinstance(record.head, spec.LanguageHead) else 1.0
    return standard_keys(record) | {"logit_scale": 1 / factor}


FAMILIES = (
    Family(
        ("granite",), spec.Decoder, to_spec, usual_rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        gguf=(Gguf("granite", gguf_spec, gguf_decoders.paired_rules, gguf_keys),),
    ),
    Family(
        ("granitemoe",), spec.Decoder, mixture_spec, mixture_rules, mixture_config, ("*rotary_emb.inv_freq",),
        _renamed, "model.", TRAINING,
    ),
)  # fmt: skip
