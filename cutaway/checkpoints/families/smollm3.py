"""SmolLM3: as Llama, but some layers have no positions, and those may slide."""

from __future__ import annotations

from typing import Any

from cutaway import spec
from cutaway.checkpoints import decoders, gguf_decoders
from cutaway.checkpoints.blocks import Stack, first_parts, sequential
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.family import Family, Gguf
from cutaway.checkpoints.names import usual_rules
from cutaway.checkpoints.rope_config import read_rope
from cutaway.errors import CheckpointError


def to_spec(config: Config) -> spec.Decoder:
    """config.json to a spec."""
    shape, bias = decoders.read_shape(config), config.flag("attention_bias", False)
    rotates = _rotates(config, shape.n_layers)
    windowed = config.flag("use_sliding_window", False) and config.nullable("sliding_window", None) is not None
    slides = decoders.read_slides(config, shape.n_layers, lambda i: windowed and not rotates[i])
    if any(slides) and not windowed:
        raise CheckpointError(f"{config.where}: layer_types has sliding layers, but use_sliding_window is off")
    rope, ffn = (
        read_rope(config, shape.head_dim, 2000000.0),
        decoders.read_gated(config, config.flag("mlp_bias", False)),
    )
    norm = spec.RMSNorm(eps=config.number("rms_norm_eps"))
    blocks = [
        sequential(
            spec.MultiHead(
                **shape.heads, **decoders.biases(bias), mask=mask, positions=rope if turned else spec.NoPositions()
            ),
            ffn, norm,
        )
        for mask, turned in zip(decoders.read_masks(config, slides), rotates, strict=True)
    ]  # fmt: skip
    return decoders.decoder(config, blocks, norm, spec.LanguageHead(tied=True))


def _rotates(config: Config, n_layers: int) -> list[bool]:
    """Whether each layer turns its queries and keys; the key's name says the opposite of what its 1 means."""
    flags, interval = config.take("no_rope_layers", None), config.integer("no_rope_layer_interval", 4)
    if flags is None:
        return [(i + 1) % interval != 0 for i in range(n_layers)]
    if not isinstance(flags, list) or len(flags) != n_layers or not set(flags) <= {0, 1}:
        raise CheckpointError(f"{config.where}: no_rope_layers is {flags}, expected {n_layers} numbers, each 0 or 1")
    return [bool(flag) for flag in flags]


def to_config(record: Stack) -> dict[str, Any]:
    """A spec to config.json."""
    attn, ffn = first_parts(record)
    masks = decoders.write_masks(record)
    rotates = [int(isinstance(attn.positions, spec.RoPE)) for attn in spec.attentions(record.blocks)]
    return decoders.write_decoder(record, "smollm3", "SmolLM3") | masks | {
        "rms_norm_eps": decoders.eps_of(record.final_norm), "attention_bias": attn.q_bias, "mlp_bias": ffn.up_bias,
        "no_rope_layers": rotates, "use_sliding_window": masks["sliding_window"] is not None,
    }  # fmt: skip


def gguf_spec(config: Config) -> spec.Decoder:
    """Keys of a GGUF file to a spec: every fourth layer has no positions."""
    shape, norm = gguf_decoders.read_shape(config), spec.RMSNorm(eps=config.number("attention.layer_norm_rms_epsilon"))
    rope, ffn = gguf_decoders.read_rope(config, shape.head_dim), gguf_decoders.read_gated(config)
    blocks = []
    for i in range(shape.n_layers):
        positions = rope if (i + 1) % 4 else spec.NoPositions()
        blocks.append(sequential(spec.MultiHead(**shape.heads, positions=positions), ffn, norm))
    return gguf_decoders.decoder(config, blocks, norm)


FAMILIES = (
    Family(
        ("smollm3",), spec.Decoder, to_spec, usual_rules, to_config, ("*rotary_emb.inv_freq",), prefix="model.",
        ignored_keys={"max_window_layers": "layer_types says which layers slide"},
        gguf=(Gguf("smollm3", gguf_spec, gguf_decoders.paired_rules),),
    ),
)  # fmt: skip
