"""GPT-2: learned positions, pre-norm LayerNorm, weights stored [in, out] (Radford et al. 2019)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import repeated, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.heads import head_rules, prefix, read_head, write_head
from cutaway.checkpoints.rules import Rule, Split, fused_qkv, renames, transposed


def to_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    d_model, n_heads, n_layers = config.integer("n_embd"), config.integer("n_head"), config.integer("n_layer")
    scale = (d_model // n_heads) ** -0.5 if config.flag("scale_attn_weights", True) else 1.0
    by_depth = config.flag("scale_attn_by_inverse_layer_idx", False)
    config.expect("add_cross_attention", False)
    length = config.integer("n_positions")
    config.expect("n_ctx", length)
    d_ff = config.integer("n_inner") if config.has("n_inner") else 4 * d_model
    config.take("n_inner", None)
    return assemble(
        d_model, n_heads, d_ff, config.number("layer_norm_epsilon", 1e-5),
        scales=[scale / (i + 1) if by_depth else scale for i in range(n_layers)],
        activation=config.choice("activation_function", ACTIVATIONS, "gelu_new"),
        vocab_size=config.integer("vocab_size"),
        context_length=length,
        head=read_head(config, spec.LanguageHead(tied=config.flag("tie_word_embeddings", True))),
        dropout=spec.Dropout(
            embedding=config.number("embd_pdrop", 0.1),
            attention=config.number("attn_pdrop", 0.1),
            residual=config.number("resid_pdrop", 0.1),
        ),
    )  # fmt: skip


def assemble(d_model: int, n_heads: int, d_ff: int, eps: float, **rest: Any) -> spec.Decoder:
    """The model; `scales` has the factor on the scores of each layer."""
    layer_norm, ffn = spec.LayerNorm(eps=eps), spec.Dense(d_ff=d_ff, activation=rest["activation"])
    usual = (d_model // n_heads) ** -0.5
    blocks = [
        sequential(
            spec.MultiHead(
                n_heads=n_heads, scale="auto" if scale == usual else scale,
                q_bias=True, k_bias=True, v_bias=True, o_bias=True,
            ),
            ffn, layer_norm,
        )
        for scale in rest["scales"]
    ]  # fmt: skip
    return spec.Decoder(
        d_model=d_model,
        vocab_size=rest["vocab_size"],
        context_length=rest["context_length"],
        embedding=spec.TokenEmbedding(positions=spec.Learned(n_positions=rest["context_length"])),
        layers=repeated(blocks),
        final_norm=layer_norm,
        head=rest["head"],
        dropout=rest.get("dropout", spec.Dropout()),
    )


TABLES = {"embedding.tokens": "wte", "embedding.positions": "wpe", "final_norm": "ln_f",
          "blocks.*.attn.norm_in": "h.*.ln_1", "blocks.*.ffn.norm_in": "h.*.ln_2"}  # fmt: skip
MATRICES = {"blocks.*.attn.o_proj": "h.*.attn.c_proj",
            "blocks.*.ffn.up_proj": "h.*.mlp.c_fc", "blocks.*.ffn.down_proj": "h.*.mlp.c_proj"}  # fmt: skip


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names; q, k and v are one matrix, and matrices stand [in, out]."""
    top, thirds = prefix(record, "transformer."), Split((record.d_model,) * 3)
    qkv = fused_qkv(record, f"{top}h.*.attn.c_attn", thirds)
    turned = transposed(qkv + renames(record, MATRICES, top))
    return renames(record, TABLES, top) + turned + head_rules(record.head, token="classifier")


def to_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    attn, ffn = (branch.part for branch in record.blocks[0].branches)
    last = record.blocks[-1].branches[0].part
    first, deepest = (spec.sizes(part, record.d_model).scale for part in (attn, last))
    return {
        "model_type": "gpt2", **write_head(record.head, "GPT2", "LMHeadModel"), "n_embd": record.d_model,
        "n_head": attn.n_heads, "n_layer": len(record.blocks), "n_positions": record.context_length,
        "n_inner": ffn.d_ff, "activation_function": THEIRS[ffn.activation], "vocab_size": record.vocab_size,
        "layer_norm_epsilon": record.final_norm.eps, "scale_attn_weights": first != 1.0,
        "scale_attn_by_inverse_layer_idx": deepest != first,
        "tie_word_embeddings": not isinstance(record.head, spec.LanguageHead) or record.head.tied,
        "embd_pdrop": record.dropout.embedding, "attn_pdrop": record.dropout.attention,
        "resid_pdrop": record.dropout.residual,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Model:
    """Keys of a GGUF file to a spec."""
    d_model, n_heads = config.integer("embedding_length"), config.integer("attention.head_count")
    rows = config.integer("n_embedding_rows")
    config.expect("attention.head_count_kv", n_heads)
    return assemble(
        d_model, n_heads, config.integer("feed_forward_length"), config.number("attention.layer_norm_epsilon"),
        scales=[(d_model // n_heads) ** -0.5] * config.integer("block_count"), activation="gelu_tanh",
        vocab_size=config.integer("vocab_size", rows), context_length=config.integer("context_length"),
        head=spec.LanguageHead(tied=config.flag("tied")),
    )  # fmt: skip


GGUF = {
    "embedding.tokens": "token_embd", "embedding.positions": "position_embd", "final_norm": "output_norm",
    "blocks.*.attn.norm_in": "blk.*.attn_norm", "blocks.*.ffn.norm_in": "blk.*.ffn_norm",
    "blocks.*.attn.o_proj": "blk.*.attn_output",
    "blocks.*.ffn.up_proj": "blk.*.ffn_up", "blocks.*.ffn.down_proj": "blk.*.ffn_down",
}  # fmt: skip


def gguf_rules(record: spec.Model) -> list[Rule]:
    """Tensor names in GGUF, where matrices stand [out, in]."""
    thirds = Split((record.d_model,) * 3)
    qkv = fused_qkv(record, "blk.*.attn_qkv", thirds)
    return renames(record, GGUF) + qkv + head_rules(record.head, language="output")


FAMILIES = (
    Family(
        ("gpt2",), to_spec, rules, to_config,
        ignored_tensors=("h.*.attn.bias", "h.*.attn.masked_bias"),
        prefix="transformer.",
        ignored_keys={
            "summary_*": "of a second head that is not read",
            "reorder_and_upcast_attn": "rounding only",
        },
        gguf=(Gguf("gpt2", gguf_spec, gguf_rules),),
    ),
)  # fmt: skip
