"""Whole models from a spec and its named weights: the one file here that knows records and names.

Each function turns a record into calls of the other files. Names of weights and of recorded states are those of the
running model: `blocks.3.attn.q_proj.weight`, `blocks.3.resid_post`; a stack of two stands under `encoder.`, `decoder.`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cutaway import spec
from cutaway.errors import InputError
from cutaway.reference import attention, feedforward, masks, positions
from cutaway.reference.embedding import patch_embedding
from cutaway.reference.functions import ACTIVATIONS, Array, identity, linear, pooled, sigmoid, soft_cap, softmax
from cutaway.reference.norms import layer_norm, rms_norm
from cutaway.reference.residual import Branch, Function, Stage, stage
from cutaway.reference.weights import Weights


@dataclass(frozen=True)
class Given:
    """What may come with the ids [B, T].

    mask [B, T] 1 for real tokens; owners [B, T] the document of each token, -1 for padding; prefix [B] lengths;
    types [B, T]; source [B, S] ids for the encoder and source_mask like mask.
    """

    mask: ArrayLike | None = None
    owners: ArrayLike | None = None
    prefix: ArrayLike | None = None
    types: ArrayLike | None = None
    source: ArrayLike | None = None
    source_mask: ArrayLike | None = None


NOTHING = Given()


@dataclass(frozen=True)
class Result:
    """Logits (or classes, or vectors), every state of the streams by its name, and the load-balance losses' sum."""

    output: Array
    states: dict[str, Array]
    balance: float


@dataclass(frozen=True)
class Call:
    """One run of one stack: where its tokens stand, what they may see, and what its layers leave for each other."""

    ids: np.ndarray
    positions: np.ndarray
    owners: np.ndarray
    d_model: int
    given: Given = NOTHING
    images: ArrayLike = ()
    relative_bias: Weights = field(default_factory=lambda: Weights({}))
    memory: Array | None = None
    memory_owners: np.ndarray | None = None
    keys: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    balance: list[float] = field(default_factory=list)


def forward(record: spec.Model, weights: Mapping[str, ArrayLike], ids: ArrayLike, given: Given = NOTHING) -> Result:
    """The model's output for ids [B, T], or for images [B, C, H, W], by definition, in float64.

    Raises InputError for a weight that is missing or that the spec has no place for, for ids outside the vocabulary,
    and for rows that are longer than a learned table.
    """
    found = Weights(weights)
    states: dict[str, Array] = {}
    if isinstance(record, spec.EncoderDecoder):
        table, h, call = _two_stacks(record, found, ids, given, states)
    else:
        call, table = _one_call(record, found, ids, given)
        h = _stack(record, found, table, call, states)
    output = _head(record.head, h, found.under("head"), table, call)
    if isinstance(record.head, spec.VectorHead) and isinstance(record.head.pooler, spec.Transform):
        first = _pool(spec.VectorHead(pool="first"), h, call)
        states["head.pooled"] = _transform(record.head.pooler, first, found.under("head.pooler"))
    left = sorted(set(found) - found.used)
    if left:
        raise InputError(f"weights: the spec has no place for {', '.join(left[:4])}" + (" ..." if left[4:] else ""))
    return Result(output, states, sum(call.balance))


def _one_call(record: Any, weights: Weights, ids: ArrayLike, given: Given) -> tuple[Call, Array]:
    if isinstance(record, spec.ImageEncoder):
        none = np.zeros((len(np.asarray(ids)), record.context_length), int)
        return _call(none, given, record.d_model, 1, images=ids), np.zeros(0)
    return _call(ids, given, record.d_model, record.vocab_size), weights.need("embedding.tokens.weight")


def _two_stacks(
    record: spec.EncoderDecoder, weights: Weights, ids: ArrayLike, given: Given, states: dict[str, Array]
) -> tuple[Array, Array, Call]:
    if given.source is None:
        raise InputError("given.source: an encoder-decoder needs the ids of its source")
    encoder, decoder = weights.under("encoder"), weights.under("decoder")
    source_table = encoder.need("embedding.tokens.weight")
    table = source_table if record.shared_embedding else decoder.need("embedding.tokens.weight")
    of_source = _call(given.source, Given(mask=given.source_mask), record.d_model, record.encoder.vocab_size)
    memory = _stack(record.encoder, encoder, source_table, of_source, states)
    call = _call(
        ids, given, record.d_model, record.decoder.vocab_size,
        memory=memory, memory_owners=of_source.owners, balance=of_source.balance,
    )  # fmt: skip
    return table, _stack(record.decoder, decoder, table, call, states), call


def _call(ids: ArrayLike, given: Given, d_model: int, vocab_size: int, **rest: Any) -> Call:
    ids = np.asarray(ids)
    if ids.size and not (ids.min() >= 0 and ids.max() < vocab_size):
        raise InputError(f"ids: {ids.min()} to {ids.max()} do not all lie in a vocabulary of {vocab_size} tokens")
    if given.owners is not None:
        owners = np.asarray(given.owners)
        places = positions.count_in_documents(owners)
    else:
        mask = np.ones_like(ids) if given.mask is None else np.asarray(given.mask)
        owners, places = masks.owners_from_mask(mask), positions.count_from_mask(mask)
    return Call(ids, places, owners, d_model, given, **rest)


def _stack(record: Any, weights: Weights, table: Array, call: Call, states: dict[str, Array]) -> Array:
    """final_norm(blocks(embedding(ids))), each state recorded on the way."""
    call = replace(call, relative_bias=weights.under("relative_bias"))
    x = states[f"{weights.prefix}embedded"] = _embedding(record.embedding, weights.under("embedding"), table, call)
    for i, block in enumerate(record.blocks):
        for each in block.stages:
            x = stage(x, _stage(each, weights.under(f"blocks.{i}"), call, i))
        states[f"{weights.prefix}blocks.{i}.resid_post"] = x
    x = states[f"{weights.prefix}final"] = norm(record.final_norm, weights.under("final_norm"))(x)
    return x


def norm(record: spec.NoNorm | spec.LayerNorm | spec.RMSNorm, weights: Weights) -> Function:
    """The norm of a record, its gain and shift filled in."""
    match record:
        case spec.LayerNorm():
            gain = weights.need("weight") if record.gain else None
            return partial(layer_norm, gain=gain, shift=weights.need("bias") if record.shift else None, eps=record.eps)
        case spec.RMSNorm():
            gain = None if record.gain == "none" else weights.need("weight")
            return partial(rms_norm, gain=gain, eps=record.eps, one_plus=record.gain == "one_plus")
    return identity


def _embedding(record: Any, weights: Weights, table: Array, call: Call) -> Array:
    if isinstance(record, spec.PatchEmbedding):
        x = patch_embedding(call.images, (record.patch_height, record.patch_width), weights)
        return norm(record.norm, weights.under("norm"))(x + _absolute(record.positions, weights, x.shape[-1], call))
    x = table[call.ids] * (call.d_model**0.5 if record.factor == "sqrt_d_model" else record.factor)
    if record.projection == "before_positions":
        x = attention.project(x, weights, "projection")
    if record.n_token_types:
        types = np.zeros_like(call.ids) if call.given.types is None else np.asarray(call.given.types)
        x = x + weights.need("types.weight")[types]
    x = norm(record.norm, weights.under("norm"))(x + _absolute(record.positions, weights, x.shape[-1], call))
    return attention.project(x, weights, "projection") if record.projection == "after_norm" else x


def _absolute(record: Any, weights: Weights, width: int, call: Call) -> Array:
    """What is added to the embedding: rows of sinusoids or of a learned table, [B, T, width]."""
    if isinstance(record, spec.NoPositions):
        return np.zeros(width)
    pad, owners = -1, call.given.owners
    match record.counted:
        case spec.ByColumn() if owners is None:
            rows = positions.count_columns(call.ids.shape) + record.offset
        case spec.FromIds(pad_id=pad):
            rows = positions.count_from_ids(call.ids, pad, record.offset, 0 if owners is None else owners)
        case _:
            rows = call.positions + record.offset
    if isinstance(record, spec.Learned):
        return positions.learned(weights.need("positions.weight"), rows)
    closed = record.frequencies == "closed"
    waves = positions.sinusoidal(rows, width, record.layout, record.base, closed)
    return np.where((rows == pad)[..., None], 0.0, waves) if closed else waves


def _stage(record: spec.Stage, weights: Weights, call: Call, layer: int) -> Stage:
    branches = [_branch(each, record, weights.under(each.name), call, layer) for each in record.branches]
    first = weights.under(record.branches[0].name)
    skip = record.residual.skip if isinstance(record.residual, spec.Add) else "none"
    return Stage(branches, norm(record.norm, first.under("norm")), norm(record.norm_sum, first.under("norm_sum")), skip)


def _branch(record: spec.Branch, of: spec.Stage, weights: Weights, call: Call, layer: int) -> Branch:
    return Branch(
        partial(_part, record.part, weights, call, layer),
        norm(record.norm_in, weights.under("norm_in")),
        norm(record.norm_out, weights.under("norm_out")),
        weights.need("residual_scale") if isinstance(of.scale, str) else of.scale,
    )


def _part(record: Any, weights: Weights, call: Call, layer: int, x: Array) -> Array:
    match record:
        case spec.MultiHead():
            return _self_attention(record, weights, call, layer, x)
        case spec.Latent():
            shape = attention.LatentShape(record.n_heads, record.nope_dim, record.rope_dim, record.value_dim)
            return attention.latent(x, weights, shape, _latent_heads(record, weights, call), visible(record.mask, call))
        case spec.Cross():
            seen = np.asarray(call.memory_owners != masks.PADDING)[:, None, :]
            return attention.multi_head(x, weights, _heads(record, weights, call), seen, call.memory)
        case spec.Dense() | spec.Gated():
            return _network(record, weights, x)
        case spec.MixtureOfExperts():
            return _mixture(record, weights, call, x)
    return np.zeros_like(x)


def _self_attention(record: spec.MultiHead, weights: Weights, call: Call, layer: int, x: Array) -> Array:
    heads = _heads(record, weights, call)
    if record.share_kv == "none":
        call.keys[layer] = attention.keys_and_values(x, weights, heads)
    kv = call.keys[layer if record.share_kv == "none" else record.share_kv]
    return attention.attend_over(x, kv, weights, heads, visible(record.mask, call))


def visible(record: Any, call: Call) -> np.ndarray:
    """What each query may see among its own stack's tokens, [B, T, T]."""
    i, j = call.positions[:, :, None], call.positions[:, None, :]
    match record:
        case spec.CausalMask():
            rule = masks.causal(i, j)
        case spec.PrefixMask():
            length = 0 if call.given.prefix is None else np.asarray(call.given.prefix)[:, None, None]
            rule = masks.prefix(i, j, length)
        case spec.SlidingMask():
            rule = masks.sliding(i, j, record.window)
        case spec.TwoSidedMask():
            rule = masks.two_sided(i, j, record.half_width)
        case spec.ChunkedMask():
            rule = masks.chunked(i, j, record.size)
        case _:
            rule = masks.full(i, j)
    return masks.visible(rule, call.owners, call.owners)


def _heads(record: spec.MultiHead | spec.Cross, weights: Weights, call: Call) -> attention.Heads:
    n = spec.sizes(record, call.d_model)
    heads = attention.Heads(n.n_heads, n.n_kv_heads, n.scale, soft_cap=_number(record.soft_cap))
    if isinstance(record.qk_norm, spec.QKNorm):
        q_norm, k_norm = (partial(_norm_under, record.qk_norm.norm, weights, name) for name in ("q_norm", "k_norm"))
        heads = replace(heads, q_norm=q_norm, k_norm=k_norm, norm_over_width=record.qk_norm.over == "width")
    if isinstance(record, spec.Cross):
        return heads
    turn, bias = (_turn(record.positions, n.head_dim, call), _bias(record.positions, n.n_heads, call))
    return replace(heads, clip=_number(record.clip), gate=record.output_gate, turn=turn, bias=bias)


def _latent_heads(record: spec.Latent, weights: Weights, call: Call) -> attention.Heads:
    return attention.Heads(
        record.n_heads,
        scale=spec.sizes(record, call.d_model).scale,
        q_norm=partial(_norm_under, record.q_norm, weights, "q_norm"),
        k_norm=partial(_norm_under, record.kv_norm, weights, "kv_norm"),
        turn=_turn(record.positions, record.rope_dim, call),
        bias=_bias(record.positions, record.n_heads, call),
    )


def _norm_under(record: Any, weights: Weights, name: str, x: Array) -> Array:
    return norm(record, weights.under(name))(x)


def _number(value: float | str) -> float | None:
    return None if isinstance(value, str) else value


def _turn(record: Any, head_dim: int, call: Call) -> Function:
    """The rotation of q and k [B, N, T, H] by their positions, or nothing."""
    if not isinstance(record, spec.RoPE):
        return identity
    rotary_dim = head_dim if record.rotary_dim == "head" else record.rotary_dim
    lengths = (call.owners[:, :, None] == call.owners[:, None, :]).sum(-1)  # B T: of each token's document
    frequencies, factor = _frequencies(record, rotary_dim, lengths)
    angles = call.positions[..., None] * frequencies  # B T P
    return partial(positions.rotate, angles=angles[:, None], layout=record.layout, factor=factor)


def _frequencies(record: spec.RoPE, rotary_dim: int, lengths: np.ndarray) -> tuple[Array, float]:
    """Frequencies [P], or [B, T, P] where a document's length matters, and the factor on cos and sin."""
    pair = (rotary_dim, record.base)
    match record.scaling:
        case spec.LinearScaling(factor=factor):
            return positions.linear_frequencies(*pair, factor), 1.0
        case spec.DynamicScaling(factor=factor, original_length=original):
            return positions.dynamic_frequencies(*pair, factor, original, lengths), 1.0
        case spec.Llama3Scaling(factor=factor, original_length=original) as scaling:
            bounds = (scaling.low_freq_factor, scaling.high_freq_factor)
            return positions.llama3_frequencies(*pair, factor, original, bounds), 1.0
        case spec.YarnScaling(factor=factor, original_length=original) as scaling:
            ramp = (scaling.beta_fast, scaling.beta_slow, scaling.truncate)
            auto = positions.yarn_attention_factor(factor, scaling.mscale, scaling.mscale_all_dim)
            frequencies = positions.yarn_frequencies(*pair, factor, original, ramp)
            return frequencies, _number(scaling.attention_factor) or auto
        case spec.LongRopeScaling(factor=factor, original_length=original) as scaling:
            auto = positions.longrope_attention_factor(factor, original)
            factors = (scaling.short_factors, scaling.long_factors)
            frequencies = positions.longrope_frequencies(*pair, factors, original, lengths)
            return frequencies, _number(scaling.attention_factor) or auto
    return positions.rope_frequencies(*pair), 1.0


def _bias(record: Any, n_heads: int, call: Call) -> ArrayLike:
    """What is added to the scores, [B, N, T, S] or what broadcasts to it."""
    match record:
        case spec.ALiBi():
            slopes = positions.alibi_slopes(n_heads, record.max_bias)
            if record.bfloat16:
                return positions.alibi_bfloat16(slopes, call.positions, record.factor)
            return positions.alibi(slopes, call.positions, call.positions, record.factor)
        case spec.T5Buckets():
            relative = call.positions[:, None, :] - call.positions[:, :, None]
            buckets = positions.t5_buckets(relative, record.n_buckets, record.max_distance, record.bidirectional)
            return positions.t5_bias(call.relative_bias.need("weight"), buckets)
    return 0.0


def _network(record: spec.Dense | spec.Gated, weights: Weights, x: Array) -> Array:
    if isinstance(record, spec.Dense):
        return feedforward.dense(x, weights, record.activation)
    gate = feedforward.Gate(record.activation, _number(record.clamp), record.alpha, record.up_offset)
    return feedforward.gated(x, weights, gate)


def _mixture(record: spec.MixtureOfExperts, weights: Weights, call: Call, x: Array) -> Array:
    rule, of_router = record.router, weights.under("router")
    logits = linear(x, of_router.need("weight"), of_router.get("bias"))
    choice_bias = of_router.get("choice_bias")
    router = feedforward.Router(
        record.n_active, rule.score, rule.normalise, rule.factor, rule.n_groups, rule.n_active_groups, rule.group_score
    )
    experts: list[Callable[[Array], Array]] = [
        partial(_network, record.expert, weights.under(f"experts.{e}")) for e in range(record.n_experts)
    ]
    y = feedforward.mixture(x, feedforward.route(logits, router, choice_bias), experts)
    if record.load_balance:
        tokens = call.owners != masks.PADDING
        scores = feedforward.scores(logits, router)
        chosen = feedforward.choose(scores, router, choice_bias)[tokens]
        likely = sigmoid(logits) if rule.score == "sigmoid" else softmax(logits)
        probabilities = likely / likely.sum(-1, keepdims=True)
        call.balance.append(record.load_balance * feedforward.load_balance(probabilities[tokens], chosen))
    if isinstance(record.shared, spec.SharedExpert):
        shared = partial(_network, record.shared.expert, weights.under("shared"))
        y = y + feedforward.shared_expert(x, shared, weights.get("shared_gate.weight") if record.shared.gated else None)
    return y


def _head(record: Any, h: Array, weights: Weights, table: Array, call: Call) -> Array:
    match record:
        case spec.ClassHead():
            states = _transform(record.transform, _pool(record, h, call), weights.under("transform"))
            return attention.project(states, weights, "projection")
        case spec.VectorHead():
            vectors = _transform(record.transform, _pool(record, h, call), weights.under("transform"))
            length = np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
            return vectors / length if record.normalise else vectors
        case spec.LanguageHead():
            factor = call.d_model**-0.5 if record.input_factor == "1/sqrt_d_model" else record.input_factor
            return soft_cap(_logits(record, h * factor, weights, table), _number(record.soft_cap))
    return _logits(record, h, weights, table)


def _logits(record: Any, h: Array, weights: Weights, table: Array) -> Array:
    h = _transform(record.transform, h, weights.under("transform"))
    matrix = table if record.tied else weights.need("weight")
    return record.logit_factor * linear(h, matrix, weights.need("bias") if record.bias else None)


def _transform(record: Any, h: Array, weights: Weights) -> Array:
    if isinstance(record, spec.NoTransform):
        return h
    dense = ACTIVATIONS[record.activation](attention.project(h, weights, "dense"))
    return norm(record.norm, weights.under("norm"))(dense)


def _pool(record: spec.ClassHead | spec.VectorHead, h: Array, call: Call) -> Array:
    """One state a row: of the first, the last or the last end token, or the mean of the real ones; none: all."""
    if record.pool == "none":
        return h
    chosen = call.owners != masks.PADDING
    if record.pool == "eos":
        chosen = chosen & (call.ids == record.eos_id)
    if not chosen.any(-1).all():
        raise InputError(f"pool {record.pool}: a row has no token of that kind")
    return pooled(h, chosen, record.pool)
