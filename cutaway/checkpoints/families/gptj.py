"""GPT-J and CodeGen: attention and feed-forward in parallel on one norm, RoPE in pairs on a part of each head.

(Wang and Komatsuzaki 2021; Nijkamp et al. 2022, arXiv:2203.13474.)
"""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack, first_parts, first_sizes, parallel
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.families import gpt2
from cutaway.checkpoints.family import Family
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import GroupSplit, Order, Rule

N_SHARDS = 4  # CodeGen's q, v, k are stacked in each of the four parts that it was trained in


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    parts, rotary_dim = gpt2.read(config), config.integer("rotary_dim", 64)
    config.expect("rotary", True)
    config.expect("scale_attn_weights", True)
    rope = spec.RoPE(rotary_dim="head" if rotary_dim == parts.head_dim else rotary_dim, layout="interleaved")
    block = parallel(spec.MultiHead(n_heads=parts.n_heads, positions=rope), parts.ffn, parts.norm)
    head = spec.LanguageHead(tied=False, bias=True)
    return gpt2.decoder(config, [block] * parts.n_layers, parts, spec.NoPositions(), head)


NAMES = {
    "embedding.tokens": "transformer.wte", "final_norm": "transformer.ln_f", "head": "lm_head",
    "head.projection": "score", "blocks.*.attn.norm": "transformer.h.*.ln_1",
    **{f"blocks.*.attn.{name}_proj": f"transformer.h.*.attn.{name}_proj" for name in "qkv"},
    "blocks.*.attn.o_proj": "transformer.h.*.attn.out_proj",
    "blocks.*.ffn.up_proj": "transformer.h.*.mlp.fc_in", "blocks.*.ffn.down_proj": "transformer.h.*.mlp.fc_out",
}  # fmt: skip
FUSED = NAMES | {f"blocks.*.attn.{name}_proj": "transformer.h.*.attn.qkv_proj" for name in "qkv"}


def rules(record: Stack) -> list[Rule]:
    """GPT-J's tensor names."""
    return table_rules(record, NAMES, prefix="transformer.")


def fused_rules(record: Stack) -> list[Rule]:
    """CodeGen's: one matrix for q, v and k."""
    cut = GroupSplit(N_SHARDS, (record.d_model // N_SHARDS,) * 3)
    return table_rules(record, FUSED, {"transformer.h.*.attn.qkv_proj": (cut, Order((0, 2, 1)))}, "transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, _ = first_parts(record)
    turned = head_dim = first_sizes(record).head_dim
    if isinstance(attn.positions, spec.RoPE):
        turned = spec.rotary_dim(attn.positions, head_dim)
    return gpt2.write(record, "gptj", "GPTJ", "ForCausalLM") | {"rotary_dim": turned}


def codegen_config(record: Stack) -> dict[str, Any]:
    """The same as CodeGen, whose classes have no classifier."""
    names = gpt2.write(record, "codegen", "CodeGen", "ForCausalLM")
    return to_config(record) | {key: names[key] for key in ("model_type", "architectures")}


BUFFERS = (*gpt2.BUFFERS, "h.*.attn.embed_positions", "h.*.attn.causal_mask")
FAMILIES = (
    Family(
        ("gptj",), spec.Decoder, to_spec, rules, to_config, BUFFERS, prefix="transformer.", ignored_keys=gpt2.OLD_KEYS
    ),
    Family(
        ("codegen",), spec.Decoder, to_spec, fused_rules, codegen_config, BUFFERS, prefix="transformer.",
        ignored_keys=gpt2.OLD_KEYS,
    ),
)  # fmt: skip
