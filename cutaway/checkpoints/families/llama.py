"""Llama and what is shaped like it: pre-norm RMSNorm, RoPE in halves, SwiGLU (arXiv:2302.13971)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.rope_config import read_rope, write_rope
from cutaway.checkpoints.rules import PairRows, Rule, linear, same
from cutaway.errors import CheckpointError

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "relu": "relu", "gelu_pytorch_tanh": "gelu_tanh"}


def to_spec(config: Config) -> spec.Model:
    """config.json to a spec."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = config.integer("head_dim", d_model // n_heads) if config.has("head_dim") else d_model // n_heads
    bias, ffn_bias = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    config.expect("pretraining_tp", 1)
    config.expect("attention_dropout", 0.0, 0)
    config.take("head_dim", None)
    attn = spec.MultiHead(
        n_heads=n_heads,
        n_kv_heads=config.integer("num_key_value_heads", n_heads),
        head_dim=head_dim,
        positions=read_rope(config, head_dim),
        q_bias=bias, k_bias=bias, v_bias=bias, o_bias=bias,
    )  # fmt: skip
    ffn = spec.Gated(
        d_ff=config.integer("intermediate_size"),
        activation=config.choice("hidden_act", ACTIVATIONS),  # pyrefly: ignore
        gate_bias=ffn_bias, up_bias=ffn_bias, down_bias=ffn_bias,
    )  # fmt: skip
    context = config.integer("max_position_embeddings")
    if isinstance(attn.positions.scaling, spec.DynamicScaling):  # it is made to run past the trained length
        context = int(context * attn.positions.scaling.factor)
    return assemble(
        attn, ffn, d_model, config.number("rms_norm_eps"),
        n_layers=config.integer("num_hidden_layers"),
        vocab_size=config.integer("vocab_size"),
        context_length=context,
        tied=config.flag("tie_word_embeddings", False),
    )  # fmt: skip


def assemble(attn: Any, ffn: Any, d_model: int, eps: float, **rest: Any) -> spec.Decoder:
    """The whole model around one attention and one feed-forward network."""
    norm = spec.RMSNorm(eps=eps)
    stages = tuple(spec.Stage(branches=(spec.Branch(part=part, norm_in=norm),)) for part in (attn, ffn))
    return spec.Decoder(
        d_model=d_model,
        vocab_size=rest["vocab_size"],
        context_length=rest["context_length"],
        layers=(spec.Repeat(times=rest["n_layers"], blocks=(spec.Block(stages=stages),)),),
        final_norm=norm,
        head=spec.LanguageHead(tied=rest["tied"]),
    )


def rules(record: spec.Model) -> list[Rule]:
    """Their tensor names."""
    out = [
        same("model.embed_tokens.weight", "embedding.tokens.weight"),
        same("model.norm.weight", "final_norm.weight"),
        same("lm_head.weight", "head.weight"),
    ]
    for i, block in enumerate(record.blocks):
        attn, ffn = (branch.part for branch in block.branches)
        theirs, ours = f"model.layers.{i}", f"blocks.{i}"
        for name, bias in (("q", attn.q_bias), ("k", attn.k_bias), ("v", attn.v_bias), ("o", attn.o_bias)):
            out += linear(f"{theirs}.self_attn.{name}_proj", f"{ours}.attn.{name}_proj", bias)
        for name, bias in (("gate", ffn.gate_bias), ("up", ffn.up_bias), ("down", ffn.down_bias)):
            out += linear(f"{theirs}.mlp.{name}_proj", f"{ours}.ffn.{name}_proj", bias)
        out.append(same(f"{theirs}.input_layernorm.weight", f"{ours}.attn.norm_in.weight"))
        out.append(same(f"{theirs}.post_attention_layernorm.weight", f"{ours}.ffn.norm_in.weight"))
    return out


def to_config(record: spec.Model) -> dict[str, Any]:
    """A spec to config.json; what does not fit shows when it is read back."""
    if not isinstance(record, spec.Decoder) or not record.blocks:
        raise CheckpointError("only a decoder with at least one layer can be written as this family")
    attn, ffn = (branch.part for branch in record.blocks[0].branches)
    n = spec.sizes(attn, record.d_model)
    scaling = attn.positions.scaling
    length = scaling.original_length if isinstance(scaling, spec.DynamicScaling) else record.context_length
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": record.d_model,
        "num_hidden_layers": len(record.blocks), "num_attention_heads": n.n_heads, "num_key_value_heads": n.n_kv_heads,
        "head_dim": n.head_dim, "intermediate_size": ffn.d_ff, "hidden_act": ffn.activation,
        "vocab_size": record.vocab_size, "rms_norm_eps": record.final_norm.eps, "max_position_embeddings": length,
        "tie_word_embeddings": record.head.tied, "attention_bias": attn.q_bias, "mlp_bias": ffn.up_bias,
        "rope_parameters": write_rope(attn.positions, n.head_dim),
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Model:
    """Keys of a GGUF file to a spec."""
    d_model, n_heads = config.integer("embedding_length"), config.integer("attention.head_count")
    head_dim = config.integer("attention.key_length", d_model // n_heads)
    config.expect("attention.value_length", head_dim)
    rotary = config.integer("rope.dimension_count", head_dim)
    config.expect("rope.scaling.type", "none")
    turned = "head" if rotary == head_dim else rotary
    rope = spec.RoPE(base=config.number("rope.freq_base", 10000.0), rotary_dim=turned, layout="halves")
    n_kv_heads = config.integer("attention.head_count_kv", n_heads)
    attn = spec.MultiHead(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim, positions=rope)
    rows = config.take("n_embedding_rows", None)
    if rows is None:
        raise CheckpointError(f"{config.where}: token_embd.weight is missing; the file holds no embedding")
    config.take("vocab_size", rows)
    return assemble(
        attn, spec.Gated(d_ff=config.integer("feed_forward_length")), d_model,
        config.number("attention.layer_norm_rms_epsilon"),
        n_layers=config.integer("block_count"), vocab_size=int(rows), context_length=config.integer("context_length"),
        tied=config.flag("tied"),
    )  # fmt: skip


def gguf_rules(record: spec.Model) -> list[Rule]:
    """Tensor names in GGUF; rows of q and k stand there in neighbouring pairs."""
    out = [
        same("token_embd.weight", "embedding.tokens.weight"),
        same("output_norm.weight", "final_norm.weight"),
        same("output.weight", "head.weight"),
    ]
    for i, block in enumerate(record.blocks):
        n = spec.sizes(block.branches[0].part, record.d_model)
        theirs, ours = f"blk.{i}", f"blocks.{i}"
        out.append(same(f"{theirs}.attn_q.weight", f"{ours}.attn.q_proj.weight", PairRows(n.n_heads)))
        out.append(same(f"{theirs}.attn_k.weight", f"{ours}.attn.k_proj.weight", PairRows(n.n_kv_heads)))
        out.append(same(f"{theirs}.attn_v.weight", f"{ours}.attn.v_proj.weight"))
        out.append(same(f"{theirs}.attn_output.weight", f"{ours}.attn.o_proj.weight"))
        out.append(same(f"{theirs}.attn_norm.weight", f"{ours}.attn.norm_in.weight"))
        out.append(same(f"{theirs}.ffn_norm.weight", f"{ours}.ffn.norm_in.weight"))
        out += [
            same(f"{theirs}.ffn_{part}.weight", f"{ours}.ffn.{part}_proj.weight") for part in ("gate", "up", "down")
        ]
    return out


FAMILIES = (
    Family(
        ("llama",), to_spec, rules, to_config, ("*.rotary_emb.inv_freq",), gguf=(Gguf("llama", gguf_spec, gguf_rules),)
    ),
)
