"""Granite: as Llama, with a factor on the embedding, the scores, each branch and the logits."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders
from cutaway.checkpoints.blocks import sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import USUAL, table_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.checkpoints.rules import Rule


def to_spec(config: Config) -> spec.Model:
    """config.json to a spec; attention_multiplier is the whole factor on the scores."""
    shape, scale = decoders.read_shape(config), config.number("attention_multiplier", 1.0)
    attn = spec.MultiHead(
        **shape.heads, **decoders.biases(config.flag("attention_bias", False)),
        positions=read_rope(config, shape.head_dim), scale="auto" if scale == shape.head_dim**-0.5 else scale,
    )  # fmt: skip
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    ffn = decoders.read_gated(config, config.flag("mlp_bias", False))
    residual = spec.Add(scale=config.number("residual_multiplier", 1.0))
    stages = (stage.replace(residual=residual) for stage in sequential(attn, ffn, norm).stages)
    head = spec.LanguageHead(tied=False, logit_factor=1 / config.number("logits_scaling", 1.0))
    embedding = spec.TokenEmbedding(factor=config.number("embedding_multiplier", 1.0))
    return decoders.decoder(config, [spec.Block(stages=tuple(stages))] * shape.n_layers, norm, head, embedding)


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names."""
    return table_rules(record, USUAL)


def to_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = decoders.first_parts(record)
    residual, head = record.blocks[0].stages[0].residual, record.head
    return decoders.write_decoder(record, "granite", "Granite") | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias, "mlp_bias": ffn.up_bias,
        "embedding_multiplier": record.embedding.factor,
        "attention_multiplier": spec.sizes(attn, record.d_model).scale,
        "residual_multiplier": residual.scale if isinstance(residual, spec.Add) else None,
        "logits_scaling": 1 / head.logit_factor if isinstance(head, spec.LanguageHead) else 1.0,
    }  # fmt: skip


FAMILIES = (Family(("granite",), to_spec, rules, to_config, ("*rotary_emb.inv_freq",), prefix="model."),)
