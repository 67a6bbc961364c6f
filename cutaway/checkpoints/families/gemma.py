"""Gemma: gains stored less 1, an embedding times sqrt(d_model), GELU gates (arXiv:2403.08295).

Gemma 2: norms before and after each branch, soft caps, every other layer slides (arXiv:2408.00118). VaultGemma: as
Gemma 2, without the norms after (arXiv:2510.15001).
"""

from __future__ import annotations

from typing import Any, Literal

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.activations import THEIRS
from cutaway.checkpoints.blocks import Build, Stack, first_parts, sandwich, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.families.gemma_files import EMBEDDING, GEMMA, GEMMA2
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def gemma_spec(config: Config) -> spec.Decoder:
    """config.json to a spec; `gelu` means its tanh form here."""
    shape, norm = decoders.read_shape(config), read_norm(config)
    config.expect("use_bidirectional_attention", None, False)
    config.expect("hidden_activation", None, "gelu_pytorch_tanh")
    attn = spec.MultiHead(**shape.heads, **read_bias(config), positions=read_rope(config, shape.head_dim))
    ffn = decoders.read_gated(config)
    ffn = ffn.replace(activation="gelu_tanh") if ffn.activation == "gelu" else ffn
    block = sequential(attn, ffn, norm)
    return decoders.decoder(config, [block] * shape.n_layers, norm, spec.LanguageHead(), EMBEDDING)


def gemma2_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _capped(config, sandwich)


def vault_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    return _capped(config, sequential)


def _capped(config: Config, block: Build) -> spec.Decoder:
    shape, norm, cap = decoders.read_shape(config), read_norm(config), read_cap(config, "attn_logit_softcapping", 50.0)
    config.expect("use_bidirectional_attention", None, False)
    rope, scale, bias = read_rope(config, shape.head_dim), read_scale(config, shape.head_dim), read_bias(config)
    ffn = decoders.read_gated(config, activation="hidden_activation")
    masks = decoders.read_masks(config, decoders.read_slides(config, shape.n_layers, lambda i: i % 2 == 0))
    blocks = [
        block(spec.MultiHead(**shape.heads, **bias, mask=mask, positions=rope, scale=scale, soft_cap=cap), ffn, norm)
        for mask in masks
    ]
    head = spec.LanguageHead(soft_cap=read_cap(config, "final_logit_softcapping", 30.0))
    return decoders.decoder(config, blocks, norm, head, EMBEDDING)


def read_norm(config: Config) -> spec.RMSNorm:
    """The norm whose gain stands in the file less 1."""
    return spec.RMSNorm(eps=config.number("rms_norm_eps"), gain="one_plus")


def read_bias(config: Config) -> decoders.AllBiases:
    """Biases of the attention, all or none."""
    return decoders.biases(config.flag("attention_bias", False))


def read_cap(config: Config, key: str, absent: float | None) -> float | Literal["none"]:
    """A soft cap; null is none."""
    return "none" if config.nullable(key, absent) is None else config.number(key, absent)


def read_scale(config: Config, head_dim: int) -> float | Literal["auto"]:
    """The factor on the scores: 1/sqrt(query_pre_attn_scalar)."""
    scalar = config.number("query_pre_attn_scalar")
    return "auto" if scalar == head_dim else scalar**-0.5


def rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    names = dict(USUAL)
    if not isinstance(record.blocks[0].branches[0].norm_out, spec.NoNorm):
        names |= {
            "blocks.*.attn.norm_out": "model.layers.*.post_attention_layernorm",
            "blocks.*.ffn.norm_in": "model.layers.*.pre_feedforward_layernorm",
            "blocks.*.ffn.norm_out": "model.layers.*.post_feedforward_layernorm",
        }
    return table_rules(record, names)


def vault_rules(record: Stack) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, {**USUAL, "blocks.*.ffn.norm_in": "model.layers.*.pre_feedforward_layernorm"})


def gemma_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return written(record, "gemma", "Gemma")


def gemma2_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written_capped(record, "gemma2", "Gemma2")


def vault_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    return _written_capped(record, "vaultgemma", "VaultGemma")


def _written_capped(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    attn, _ = first_parts(record)
    masks = decoders.write_masks(record, record.context_length)
    return written(record, model_type, stem) | masks | write_scalars(record) | {
        "attn_logit_softcapping": None if attn.soft_cap == "none" else attn.soft_cap,
    }  # fmt: skip


def written(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    """What the configurations of all three have in common."""
    attn, _ = first_parts(record)
    return decoders.write_decoder(record, model_type, stem) | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias,
    }  # fmt: skip


def write_scalars(record: Stack) -> dict[str, Any]:
    """What the second and third have in common besides."""
    attn, ffn = first_parts(record)
    cap = record.head.soft_cap if isinstance(record.head, spec.LanguageHead) else "none"
    return {
        "query_pre_attn_scalar": round(spec.sizes(attn, record.d_model).scale ** -2),
        "final_logit_softcapping": None if cap == "none" else cap, "hidden_activation": THEIRS.get(ffn.activation),
    }  # fmt: skip


LEFT = ("*rotary_emb.inv_freq",)
COUNTS = {"hidden_act": "hidden_activation is what counts"}
FAMILIES = (
    Family(("gemma",), spec.Decoder, gemma_spec, rules, gemma_config, LEFT, prefix="model.", gguf=GEMMA),
    Family(("gemma2",), spec.Decoder, gemma2_spec, rules, gemma2_config, LEFT, prefix="model.", ignored_keys=COUNTS,
           gguf=GEMMA2),
    Family(("vaultgemma",), spec.Decoder, vault_spec, vault_rules, vault_config, LEFT, prefix="model.",
           ignored_keys=COUNTS),
)  # fmt: skip
