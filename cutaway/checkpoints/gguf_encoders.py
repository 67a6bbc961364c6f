"""The keys and names of a post-norm encoder in GGUF files."""

from __future__ import annotations

from cutaway import spec
from cutaway.checkpoints.blocks import Stack, post_norm, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.encoders import attention
from cutaway.checkpoints.names import Names
from cutaway.checkpoints.rules import Rule, renames
from cutaway.spec.head import Pool

POOLS: dict[int, Pool] = {0: "none", 1: "mean", 2: "first", 3: "last"}
NAMES: Names = {
    "embedding.tokens": "token_embd", "embedding.positions": "position_embd", "embedding.types": "token_types",
    "embedding.norm": "token_embd_norm",
    **{f"blocks.*.attn.{name}_proj": f"blk.*.attn_{name}" for name in ("q", "k", "v")},
    "blocks.*.attn.o_proj": "blk.*.attn_output", "blocks.*.attn.norm_sum": "blk.*.attn_output_norm",
    "blocks.*.ffn.up_proj": "blk.*.ffn_up", "blocks.*.ffn.down_proj": "blk.*.ffn_down",
    "blocks.*.ffn.norm_sum": "blk.*.layer_output_norm",
}  # fmt: skip


def read_encoder(config: Config) -> spec.Encoder:
    """Learned positions by column, token types, exact GELU; `pooling_type` says what is made of the states."""
    norm = spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"))
    config.expect("attention.causal", False)
    n_heads, rows = config.integer("attention.head_count"), config.integer("n_embedding_rows")
    config.expect("attention.head_count_kv", n_heads)
    places = spec.Learned(n_positions=config.integer("context_length"), counted=spec.ByColumn())
    ffn = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu")
    return spec.Encoder(
        d_model=config.integer("embedding_length"), vocab_size=config.integer("vocab_size", rows),
        context_length=places.n_positions,
        embedding=spec.TokenEmbedding(
            n_token_types=config.integer("tokenizer.ggml.token_type_count", 2), positions=places, norm=norm
        ),
        layers=repeated([post_norm(attention(n_heads), ffn, norm)] * config.integer("block_count")),
        head=spec.VectorHead(pool=config.choice("pooling_type", POOLS, 0)),
    )  # fmt: skip


def encoder_rules(record: Stack) -> list[Rule]:
    """Tensor names."""
    return renames(record, NAMES)
