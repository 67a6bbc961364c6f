"""ModernBERT: a pre-norm encoder, rotary, with windows in most layers (Warner et al. 2024, arXiv:2412.13663)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import first_parts, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import FULL, SLIDING, biases, eps_of, read_slides
from cutaway.checkpoints.encoders import task, write_head
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.heads import classes
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rope_config import read_rope, write_rope
from cutaway.checkpoints.rules import Rule, same
from cutaway.spec.head import Head, Pool

CLASSES = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
BASES = {FULL: 160000.0, SLIDING: 10000.0}


def to_spec(config: Config) -> spec.Encoder:
    """config.json to a spec."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    every = config.integer("global_attn_every_n_layers", 3)
    slides = read_slides(config, config.integer("num_hidden_layers"), lambda layer: layer % every > 0)
    ropes, norm = read_ropes(config, d_model // n_heads), read_norm(config)
    local = spec.TwoSidedMask(half_width=config.integer("local_attention", 128) // 2)
    bias, ffn_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    ffn = spec.Gated(
        d_ff=config.integer("intermediate_size"),
        activation=config.choice("hidden_activation", ACTIVATIONS, "gelu"),
        gate_bias=ffn_bias, up_bias=ffn_bias, down_bias=ffn_bias,
    )  # fmt: skip
    blocks = []
    for layer, slide in enumerate(slides):
        attn = spec.MultiHead(
            n_heads=n_heads, mask=local if slide else spec.FullMask(), positions=ropes[slide], **biases(bias)
        )
        first = spec.Branch(part=attn, norm_in=norm if layer else spec.NoNorm())  # the embedding's norm stands before
        second = spec.Branch(part=ffn, norm_in=norm)
        blocks.append(spec.Block(stages=(spec.Stage(branches=(first,)), spec.Stage(branches=(second,)))))
    return spec.Encoder(
        d_model=d_model, vocab_size=config.integer("vocab_size"),
        context_length=config.integer("max_position_embeddings"), embedding=spec.TokenEmbedding(norm=norm),
        layers=repeated(blocks), final_norm=norm, head=read_head(config, norm),
        dropout=spec.Dropout(
            embedding=config.number("embedding_dropout", 0.0), attention=config.number("attention_dropout", 0.0),
            hidden=config.number("mlp_dropout", 0.0),
        ),
    )  # fmt: skip


def read_ropes(config: Config, head_dim: int) -> tuple[spec.RoPE, spec.RoPE]:
    """The rotations of global and local layers; in older files the local base may be null, which means the global."""
    if config.has("rope_parameters"):
        full, local = (read_rope(config, head_dim, BASES[kind], layer_type=kind) for kind in (FULL, SLIDING))
        return full, local
    config.expect("rope_scaling", None)
    base = config.number("global_rope_theta", BASES[FULL])
    null = config.nullable("local_rope_theta", BASES[SLIDING]) is None
    local = base if null else config.number("local_rope_theta", BASES[SLIDING])
    return spec.RoPE(base=base, layout="halves"), spec.RoPE(base=local, layout="halves")


def read_norm(config: Config) -> spec.LayerNorm:
    return spec.LayerNorm(eps=config.number("norm_eps", 1e-5), shift=config.flag("norm_bias", False))


def read_head(config: Config, norm: spec.LayerNorm) -> Head:
    kind = task(config, "ModernBert", CLASSES)
    tied = config.flag("tie_word_embeddings", True)
    transform = spec.Transform(
        activation=config.choice("classifier_activation", ACTIVATIONS, "gelu"),
        bias=config.flag("classifier_bias", False), norm=norm,
    )  # fmt: skip
    bias, pool = config.flag("decoder_bias", True), config.choice("classifier_pooling", POOLS, "cls")
    match kind:
        case "Model":
            return spec.VectorHead()
        case "ForMaskedLM":
            return spec.MaskedHead(tied=tied, bias=bias, transform=transform)
        case "ForSequenceClassification":
            return spec.ClassHead(**classes(config), pool=pool, transform=transform)
    return spec.ClassHead(**classes(config), pool="none", transform=transform)


POOLS: dict[str, Pool] = {"cls": "first", "mean": "mean"}
NAMES = {
    "embedding.tokens": "model.embeddings.tok_embeddings", "embedding.norm": "model.embeddings.norm",
    "final_norm": "model.final_norm", "blocks.*.attn.norm_in": "model.layers.*.attn_norm",
    **{f"blocks.*.attn.{name}_proj": "model.layers.*.attn.Wqkv" for name in "qkv"},
    "blocks.*.attn.o_proj": "model.layers.*.attn.Wo", "blocks.*.ffn.norm_in": "model.layers.*.mlp_norm",
    "blocks.*.ffn.gate_proj": "model.layers.*.mlp.Wi", "blocks.*.ffn.up_proj": "model.layers.*.mlp.Wi",
    "blocks.*.ffn.down_proj": "model.layers.*.mlp.Wo",
    "head": "decoder", "head.projection": "classifier",
    "head.transform.dense": "head.dense", "head.transform.norm": "head.norm",
}  # fmt: skip


def rules(record: spec.Encoder) -> list[Rule]:
    """Their tensor names; q, k, v are one matrix, gate and up another."""
    return [*table_rules(record, NAMES), same("decoder.weight", "head.weight")]


def to_config(record: spec.Encoder) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    (attn, ffn), head = first_parts(record), record.head
    attns = spec.attentions(record.blocks)
    kinds = [SLIDING if isinstance(each.mask, spec.TwoSidedMask) else FULL for each in attns]
    widths = [each.mask.half_width for each in attns if isinstance(each.mask, spec.TwoSidedMask)]
    ropes = {kind: at.positions for kind, at in zip(kinds, attns, strict=True) if isinstance(at.positions, spec.RoPE)}
    transform = head.transform if isinstance(head.transform, spec.Transform) else spec.Transform(bias=False)
    return {
        "model_type": "modernbert", **write_head(head, "ModernBert"), "hidden_size": record.d_model,
        "num_hidden_layers": len(record.blocks), "num_attention_heads": attn.n_heads, "intermediate_size": ffn.d_ff,
        "hidden_activation": THEIRS.get(ffn.activation), "vocab_size": record.vocab_size,
        "max_position_embeddings": record.context_length, "norm_eps": eps_of(record.final_norm),
        "norm_bias": isinstance(record.final_norm, spec.LayerNorm) and record.final_norm.shift,
        "attention_bias": attn.q_bias, "mlp_bias": ffn.down_bias, "layer_types": kinds,
        "local_attention": 2 * widths[0] if widths else 128,
        "rope_parameters": {
            kind: write_rope(ropes.get(kind, spec.RoPE(base=base)), 1) for kind, base in BASES.items()
        },
        "decoder_bias": not isinstance(head, spec.MaskedHead) or head.bias,
        "classifier_activation": THEIRS.get(transform.activation), "classifier_bias": transform.bias,
        "classifier_pooling": "mean" if isinstance(head, spec.ClassHead) and head.pool == "mean" else "cls",
        "embedding_dropout": record.dropout.embedding, "attention_dropout": record.dropout.attention,
        "mlp_dropout": record.dropout.hidden,
    }  # fmt: skip


FAMILIES = (
    Family(
        ("modernbert",), spec.Encoder, to_spec, rules, to_config, prefix="model.",
        ignored_tensors=("head.*", "decoder.*"),
        ignored_keys={
            "sparse_pred*": "training only", "classifier_dropout": "training only",
            "initializer_cutoff_factor": "training only", "deterministic_flash_attn": "an API switch",
            "reference_compile": "an API switch", "repad_logits_with_grad": "training only",
            "position_embedding_type": "never read", "layer_norm_eps": "never read",
            "gradient_checkpointing": "training only",
        },
    ),
)  # fmt: skip
