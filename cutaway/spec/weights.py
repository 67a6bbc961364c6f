"""A model's weights by name and shape, worked out from its spec: what a built module or a native file must hold."""

from __future__ import annotations

from math import prod
from typing import Any

from cutaway.spec.attention import Cross, Latent, MultiHead, QKNorm, sizes
from cutaway.spec.block import Block, Stage, attentions
from cutaway.spec.embedding import PatchEmbedding, TokenEmbedding, inner_width, table_width
from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts, SharedExpert
from cutaway.spec.head import ClassHead, HeadTransform, Transform, VectorHead, head_width, transform_width
from cutaway.spec.model import EncoderDecoder, Model, last_stack, stacks
from cutaway.spec.norms import LayerNorm, RMSNorm
from cutaway.spec.positions import Learned, T5Buckets

Shapes = dict[str, tuple[int, ...]]


def weights(spec: Model) -> Shapes:
    """Every weight's name and shape; a shared or tied table stands once, under its owner's name.

    >>> from cutaway.spec.presets import preset
    >>> weights(preset("gpt2"))["blocks.3.attn.q_proj.weight"]
    (768, 768)
    """
    return {f"{path}.{name}": shape for path, part in part_weights(spec).items() for name, shape in part.items()}


def part_weights(spec: Model) -> dict[str, Shapes]:
    """The same by part: `embedding`, `blocks.3.attn`, `relative_bias`, `final_norm`, `head`, with names inside it."""
    out: dict[str, Shapes] = {}
    for prefix, stack in stacks(spec).items():
        own_table = not (isinstance(spec, EncoderDecoder) and spec.shared_embedding and prefix == "decoder.")
        out[f"{prefix}embedding"] = _embedding(stack, spec.d_model, own_table)
        for index, block in enumerate(stack.blocks):
            out |= {f"{prefix}blocks.{index}.{name}": part for name, part in block_weights(block, spec.d_model).items()}
        out[f"{prefix}relative_bias"] = _relative_bias(stack.blocks)
        out[f"{prefix}final_norm"] = norm_weights(stack.final_norm, spec.d_model)
    out["head"] = _head(spec, last_stack(spec).vocab_size)
    return out


def block_weights(block: Block, d_model: int) -> dict[str, Shapes]:
    """The weights of one block by branch: the part's own, the branch's norms, and the stage's on its first branch."""
    out: dict[str, Shapes] = {}
    for stage in block.stages:
        for number, branch in enumerate(stage.branches):
            norms = {"norm_in": branch.norm_in, "norm_out": branch.norm_out}
            if number == 0:
                norms |= {"norm": stage.norm, "norm_sum": stage.norm_sum}
            held = part_shapes(branch.part, d_model) | _residual_scale(stage, d_model)
            for name, norm in norms.items():
                held |= _under(name, norm_weights(norm, d_model))
            out[branch.name] = held
    return out


def part_shapes(part: Any, d_model: int) -> Shapes:
    """The weights of an attention or feed-forward network; a removed one has none."""
    match part:
        case MultiHead() | Cross():
            return _heads(part, d_model)
        case Latent():
            return _latent(part, d_model)
        case Dense():
            return _linear("up_proj", d_model, part.d_ff, part.up_bias) | _linear(
                "down_proj", part.d_ff, d_model, part.down_bias
            )
        case Gated():
            return (
                _linear("gate_proj", d_model, part.d_ff, part.gate_bias)
                | _linear("up_proj", d_model, part.d_ff, part.up_bias)
                | _linear("down_proj", part.d_ff, d_model, part.down_bias)
            )
        case MixtureOfExperts():
            return _mixture(part, d_model)
    return {}


def norm_weights(norm: Any, width: int, heads: int = 0) -> Shapes:
    """Gain and shift of a norm over `width` numbers, a row for each of `heads` heads where given."""
    shape: tuple[int, ...] = (heads, 1, width) if heads else (width,)
    out: Shapes = {}
    match norm:
        case LayerNorm():
            out |= {"weight": shape} if norm.gain else {}
            out |= {"bias": shape} if norm.shift else {}
        case RMSNorm():
            out |= {} if norm.gain == "none" else {"weight": shape}
    return out


def size(shapes: Shapes) -> int:
    """How many numbers."""
    return sum(prod(shape) for shape in shapes.values())


def _linear(name: str, d_in: int, d_out: int, bias: bool) -> Shapes:
    out: Shapes = {f"{name}.weight": (d_out, d_in)}
    return out | ({f"{name}.bias": (d_out,)} if bias else {})


def _under(name: str, shapes: Shapes) -> Shapes:
    return {f"{name}.{inner}": shape for inner, shape in shapes.items()}


def _heads(part: MultiHead | Cross, d_model: int) -> Shapes:
    n = sizes(part, d_model)
    out = _linear("q_proj", d_model, n.n_heads * n.head_dim, part.q_bias)
    makes_keys = isinstance(part, Cross) or part.share_kv == "none"
    if makes_keys:
        out |= _linear("k_proj", d_model, n.n_kv_heads * n.head_dim, part.k_bias)
        out |= _linear("v_proj", d_model, n.n_kv_heads * n.value_dim, part.v_bias)
    out |= _linear("o_proj", n.n_heads * n.value_dim, d_model, part.o_bias)
    if isinstance(part.qk_norm, QKNorm):
        for name, heads in (("q_norm", n.n_heads), ("k_norm", n.n_kv_heads))[: 1 + makes_keys]:
            wide = part.qk_norm.over == "width"
            per_head = heads if part.qk_norm.gain == "per_head" and not wide else 0
            out |= _under(name, norm_weights(part.qk_norm.norm, n.head_dim * (heads if wide else 1), per_head))
    if isinstance(part, MultiHead):
        gate = {"none": 0, "per_head": 1, "per_element": n.value_dim}[part.output_gate]
        out |= _linear("gate_proj", d_model, n.n_heads * gate, bias=False) if gate else {}
        out |= {"sinks": (n.n_heads,)} if part.sinks else {}
    return out


def _latent(part: Latent, d_model: int) -> Shapes:
    width = part.n_heads * (part.nope_dim + part.rope_dim)
    if part.q_rank == "none":
        out = _linear("q_proj", d_model, width, bias=False)
    else:
        out = _linear("q_down", d_model, part.q_rank, part.down_bias) | _linear("q_up", part.q_rank, width, bias=False)
        out |= _under("q_norm", norm_weights(part.q_norm, part.q_rank))
    out |= _linear("kv_down", d_model, part.kv_rank + part.rope_dim, part.down_bias)
    out |= _under("kv_norm", norm_weights(part.kv_norm, part.kv_rank))
    out |= _linear("kv_up", part.kv_rank, part.n_heads * (part.nope_dim + part.value_dim), bias=False)
    return out | _linear("o_proj", part.n_heads * part.value_dim, d_model, part.o_bias)


def _mixture(part: MixtureOfExperts, d_model: int) -> Shapes:
    out: Shapes = {"router.weight": (part.n_experts, d_model)}
    for name, there in (("bias", part.router.bias), ("choice_bias", part.router.choice_bias)):
        out |= {f"router.{name}": (part.n_experts,)} if there else {}
    for index in range(part.n_experts):
        out |= _under(f"experts.{index}", part_shapes(part.expert, d_model))
    if isinstance(part.shared, SharedExpert):
        out |= _under("shared", part_shapes(part.shared.expert, d_model))
        out |= _linear("shared_gate", d_model, 1, bias=False) if part.shared.gated else {}
    return out


def _residual_scale(stage: Stage, d_model: int) -> Shapes:
    return {"residual_scale": (1 if stage.scale == "scalar" else d_model,)} if isinstance(stage.scale, str) else {}


def _patches(record: PatchEmbedding, d_model: int) -> Shapes:
    out = _linear("patches", record.patch_size, d_model, record.bias)
    out |= {"class_token": (d_model,)} if record.class_token else {}
    return out | _learned(record.positions, d_model) | _under("norm", norm_weights(record.norm, d_model))


def _learned(positions: Any, width: int) -> Shapes:
    learned = isinstance(positions, Learned)
    return {"positions.weight": (positions.n_positions + positions.offset, width)} if learned else {}


def _embedding(stack: Any, d_model: int, own_table: bool) -> Shapes:
    if isinstance(stack.embedding, PatchEmbedding):
        return _patches(stack.embedding, d_model)
    record: TokenEmbedding = stack.embedding
    width, inner = table_width(record, d_model), inner_width(record, d_model)
    out: Shapes = {"tokens.weight": (stack.vocab_size, width)} if own_table else {}
    if record.projection != "none":
        out |= _linear("projection", width, d_model, record.projection_bias)
    if record.n_token_types:
        out["types.weight"] = (record.n_token_types, inner)
    return out | _learned(record.positions, inner) | _under("norm", norm_weights(record.norm, inner))


def _relative_bias(blocks: tuple[Block, ...]) -> Shapes:
    for part in attentions(blocks):
        if isinstance(part.positions, T5Buckets):
            return {"weight": (part.positions.n_buckets, part.n_heads)}
    return {}


def _head(spec: Model, vocab_size: int) -> Shapes:
    head, width = spec.head, head_width(spec.head, spec.d_model)
    out = _transform("transform", head.transform, spec.d_model, width)
    if isinstance(head, ClassHead):
        return out | _linear("projection", width, head.n_classes, head.bias)
    if isinstance(head, VectorHead):
        return out | _transform("pooler", head.pooler, spec.d_model, transform_width(head.pooler, spec.d_model))
    out |= {} if head.tied else {"weight": (vocab_size, width)}
    return out | ({"bias": (vocab_size,)} if head.bias else {})


def _transform(name: str, record: HeadTransform, d_model: int, width: int) -> Shapes:
    if not isinstance(record, Transform):
        return {}
    dense = _under(name, _linear("dense", d_model, width, record.bias))
    return dense | _under(f"{name}.norm", norm_weights(record.norm, width))
