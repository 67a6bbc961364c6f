"""GPT-BigCode (SantaCoder, StarCoder): GPT-2 with one key head for all queries (arXiv:2301.03988)."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints.blocks import Stack, first_sizes, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.decoders import biases
from cutaway.checkpoints.families import gpt2
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.gguf_decoders import decoder as gguf_decoder
from cutaway.checkpoints.gguf_decoders import read_shape
from cutaway.checkpoints.heads import classifier
from cutaway.checkpoints.names import table_rules
from cutaway.checkpoints.rules import GroupSplit, Rule

IGNORED = {
    **gpt2.OLD_KEYS, "attention_softmax_in_fp32": "rounding only", "scale_attention_softmax_in_fp32": "rounding only",
    "num_key_value_heads": "multi_query says it", "inference_runner": "an API switch",
    "validate_runner_input": "an API switch", "pre_allocate_kv_cache": "the caller owns the cache",
    "pad_key_length": "the caller owns the cache", "max_batch_size": "an API switch",
    "max_sequence_length": "an API switch", "runner_max_sequence_length": "an API switch",
}  # fmt: skip


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    parts, scaled = gpt2.read(config), config.flag("scale_attn_weights", True)
    attn = spec.MultiHead(
        n_heads=parts.n_heads,
        n_kv_heads=1 if config.flag("multi_query", True) else parts.n_heads,
        scale="auto" if scaled else 1.0,
        **biases(True),
    )
    block = sequential(attn, parts.ffn, parts.norm)
    learned = spec.Learned(n_positions=config.integer("n_positions"))
    return gpt2.decoder(config, [block] * parts.n_layers, parts, learned, spec.LanguageHead(), dropout=0.1)


def rules(record: Stack) -> list[Rule]:
    """GPT-2's names, [out, in]; without the shared key head q, k and v of a head stand together."""
    n = first_sizes(record)
    by_head = {"transformer.h.*.attn.c_attn": (GroupSplit(n.n_heads, (n.head_dim,) * 3),)}
    names = gpt2.NAMES | classifier(record.head)
    return table_rules(record, names, {} if n.n_kv_heads == 1 else by_head, "transformer.")


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    n = first_sizes(record)
    return gpt2.write(record, "gpt_bigcode", "GPTBigCode", "ForCausalLM") | {
        "scale_attn_weights": n.scale != 1.0, "multi_query": n.n_kv_heads == 1,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec."""
    shape, norm = read_shape(config), spec.LayerNorm(eps=config.number("attention.layer_norm_epsilon"))
    ffn = spec.Dense(d_ff=config.integer("feed_forward_length"), activation="gelu_tanh")
    block = sequential(spec.MultiHead(**shape.heads, **biases(True)), ffn, norm)
    learned = spec.TokenEmbedding(positions=spec.Learned(n_positions=config.integer("context_length")))
    return gguf_decoder(config, [block] * shape.n_layers, norm, embedding=learned)


FAMILIES = (
    Family(
        ("gpt_bigcode",), spec.Decoder, to_spec, rules, to_config, ("bias", *gpt2.BUFFERS), prefix="transformer.",
        ignored_keys=IGNORED, gguf=(Gguf("starcoder", gguf_spec, lambda record: table_rules(record, gpt2.GGUF)),),
    ),
)  # fmt: skip
