"""What the configurations of most decoders have in common: sizes, masks, and a whole model from its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

from cutaway import spec
from cutaway.checkpoints.activations import ACTIVATIONS, THEIRS
from cutaway.checkpoints.blocks import Stack, first_sizes, layer_parts, repeated
from cutaway.checkpoints.config import Config
from cutaway.checkpoints.heads import read_head, write_head
from cutaway.checkpoints.rope_config import write_rope
from cutaway.errors import CheckpointError
from cutaway.spec.attention import Mask
from cutaway.spec.norms import Norm

FULL, SLIDING = "full_attention", "sliding_attention"


class Heads(TypedDict):
    """Fields of spec.MultiHead."""

    n_heads: int
    n_kv_heads: int
    head_dim: int


class Biases(TypedDict):
    """Fields of spec.MultiHead."""

    q_bias: bool
    k_bias: bool
    v_bias: bool


class AllBiases(Biases):
    """Fields of spec.MultiHead."""

    o_bias: bool


class Shape(NamedTuple):
    """The sizes that all layers share."""

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int

    @property
    def heads(self) -> Heads:
        return {"n_heads": self.n_heads, "n_kv_heads": self.n_kv_heads, "head_dim": self.head_dim}


def read_shape(config: Config) -> Shape:
    """Widths and counts; a head is hidden_size / num_attention_heads wide only where `head_dim` says nothing else."""
    d_model, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    n_kv_heads = config.integer("num_key_value_heads", n_heads)
    head_dim = config.integer("head_dim", d_model // n_heads)
    return Shape(d_model, config.integer("num_hidden_layers"), n_heads, n_kv_heads, head_dim)


def biases(on: bool) -> AllBiases:
    """All of an attention, or none."""
    return {"q_bias": on, "k_bias": on, "v_bias": on, "o_bias": on}


def biases_before(on: bool) -> Biases:
    """Those of q, k and v."""
    return {"q_bias": on, "k_bias": on, "v_bias": on}


def read_gated(config: Config, bias: bool = False, activation: str = "hidden_act") -> spec.Gated:
    """The gated feed-forward network."""
    return spec.Gated(
        d_ff=config.integer("intermediate_size"),
        activation=config.choice(activation, ACTIVATIONS),
        gate_bias=bias, up_bias=bias, down_bias=bias,
    )  # fmt: skip


def read_slides(config: Config, n_layers: int, rule: Callable[[int], bool]) -> list[bool]:
    """Whether each layer has the sliding window: `layer_types` where the file has it, else the family's rule."""
    types = config.take("layer_types", None)
    if types is None:
        return [rule(layer) for layer in range(n_layers)]
    if not isinstance(types, list) or len(types) != n_layers or not set(types) <= {FULL, SLIDING}:
        raise CheckpointError(
            f"{config.where}: layer_types is {types}, expected {n_layers} words, each {FULL} or {SLIDING}"
        )
    return [kind == SLIDING for kind in types]


def read_masks(config: Config, slides: Sequence[bool]) -> list[spec.CausalMask | spec.SlidingMask]:
    """The mask of each layer; the window counts the token itself."""
    window = spec.SlidingMask(window=config.integer("sliding_window")) if any(slides) else None
    config.take("sliding_window", None)
    return [spec.CausalMask() if window is None or not slide else window for slide in slides]


def decoder(
    config: Config,
    blocks: Sequence[spec.Block],
    final_norm: Norm,
    head: spec.LanguageHead = spec.LanguageHead(tied=False),
    embedding: spec.TokenEmbedding = spec.TokenEmbedding(),
) -> spec.Decoder:
    """The whole model; `head.tied` is what the family does where `tie_word_embeddings` is absent."""
    head = head.replace(tied=config.flag("tie_word_embeddings", head.tied))
    return spec.Decoder(
        d_model=config.integer("hidden_size"),
        vocab_size=config.integer("vocab_size"),
        context_length=_context(config.integer("max_position_embeddings"), blocks),
        embedding=embedding,
        layers=repeated(blocks),
        final_norm=final_norm,
        head=read_head(config, head),
        dropout=spec.Dropout(attention=config.number("attention_dropout", 0.0)),
    )


def _context(length: int, blocks: Sequence[spec.Block]) -> int:
    """How far the model may run: beyond the length in the file where its rotation is scaled for that."""
    scaling = _rope(blocks).scaling
    if isinstance(scaling, spec.DynamicScaling):
        return int(length * scaling.factor)
    if isinstance(scaling, spec.YarnScaling):
        return max(length, int(scaling.original_length * scaling.factor))
    return length


def _rope(blocks: Sequence[spec.Block]) -> spec.RoPE:
    """The first rotation; where no layer has one, what a file says of it changes nothing."""
    ropes = (part.positions for part in spec.attentions(blocks) if isinstance(part.positions, spec.RoPE))
    return next(ropes, spec.RoPE(layout="halves"))


def eps_of(norm: Norm) -> float:
    """The epsilon of a norm. Raises CheckpointError where there is no norm."""
    if isinstance(norm, spec.NoNorm):
        raise CheckpointError("a model without a final norm does not fit this family")
    return norm.eps


def write_decoder(record: Stack, model_type: str, stem: str) -> dict[str, Any]:
    """The keys of config.json that all these families share; `stem` begins the names of their classes.

    What does not fit shows when they are read back.
    """
    attn, ffn = layer_parts(record)
    ffn = ffn.expert if isinstance(ffn, spec.MixtureOfExperts) else ffn
    n, rope = spec.sizes(attn, record.d_model), _rope(record.blocks)
    length = rope.scaling.original_length if isinstance(rope.scaling, spec.DynamicScaling) else record.context_length
    return {
        "model_type": model_type, **write_head(record.head, stem), "hidden_size": record.d_model,
        "num_hidden_layers": len(record.blocks), "num_attention_heads": n.n_heads, "num_key_value_heads": n.n_kv_heads,
        "head_dim": n.head_dim, "intermediate_size": ffn.d_ff, "hidden_act": THEIRS.get(ffn.activation),
        "vocab_size": record.vocab_size,
        "max_position_embeddings": length,
        "attention_dropout": record.dropout.attention, "rope_parameters": write_rope(rope, n.head_dim),
    }  # fmt: skip


def write_masks(record: Stack, unused: int | str | None = None) -> dict[str, Any]:
    """`layer_types` and `sliding_window`, which is `unused` where no layer slides."""
    windows = [_window(part.mask) for part in spec.attentions(record.blocks)]
    return {
        "layer_types": [FULL if window is None else SLIDING for window in windows],
        "sliding_window": next((window for window in windows if window is not None), unused),
    }


def write_ropes(record: Stack) -> dict[str, Any]:
    """`rope_parameters` with a table for each kind of layer."""
    head_dim, tables = first_sizes(record).head_dim, {}
    for kind, slides in ((FULL, False), (SLIDING, True)):
        of_kind = [block for block in record.blocks if _slides(block) == slides]
        tables[kind] = write_rope(_rope(of_kind), head_dim)
    return {"rope_parameters": tables}


def _window(mask: Mask) -> int | None:
    """The window; that of a two-sided mask is halved where it is read."""
    if isinstance(mask, spec.TwoSidedMask):
        return 2 * mask.half_width
    return mask.window if isinstance(mask, spec.SlidingMask) else None


def _slides(block: spec.Block) -> bool:
    return any(_window(part.mask) is not None for part in spec.attentions([block]))
