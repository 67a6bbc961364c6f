"""What each part costs, in numbers and multiply-adds; `count` adds them up and turns them into bytes and FLOPs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cutaway.spec.attention import Cross, Latent, Mask, MultiHead, QKNorm, sizes
from cutaway.spec.embedding import PatchEmbedding, TokenEmbedding, inner_width, table_width
from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts, SharedExpert
from cutaway.spec.head import Head, Transform, head_width, pools
from cutaway.spec.norms import NoNorm
from cutaway.spec.positions import Learned
from cutaway.spec.weights import Shapes, part_shapes, size


@dataclass(frozen=True)
class Lengths:
    """A stack's row: its tokens and its source's, rows in a batch, whether it writes text and can keep what it read."""

    d_model: int
    tokens: int
    source: int
    batch: int
    writes: bool
    cached: bool

    @property
    def step(self) -> int:
        """Tokens that pass the stack to write one: the new one, or all of them where nothing is kept."""
        return 0 if not self.writes else 1 if self.cached else self.tokens


@dataclass(frozen=True)
class Cost:
    """Multiply-adds of a row and of its last token alone; weights idle for a token, weights that a decoding step reads;
    numbers cached a token and a row; numbers that the backward pass needs of a row."""

    row: int = 0
    step: int = 0
    idle: int = 0
    read: int = 0
    cache_token: int = 0
    cache_row: int = 0
    kept: int = 0


def branch_cost(part: Any, norms: tuple[Any, ...], held: Shapes, at: Lengths) -> Cost:
    """A branch: its part, and the norms and the learned scale that hang on it."""
    n_kept = sum(not isinstance(norm, NoNorm) for norm in norms) + ("residual_scale" in held)
    match part:
        case MultiHead() | Latent():
            cost = _attention(part, held, at)
        case Cross():
            cost = _cross(part, held, at)
        case _:
            cost = _feed_forward(part, held, at)
    return replace(cost, kept=cost.kept + n_kept * at.d_model * at.tokens, read=cost.read if at.writes else 0)


def embedding_cost(stack: Any, held: Shapes, at: Lengths) -> Cost:
    """Rows are looked up, not multiplied: a step reads a row of each table for each sequence. Patches are products."""
    if isinstance(stack.embedding, PatchEmbedding):
        return _patches_cost(stack.embedding, held, at)
    record: TokenEmbedding = stack.embedding
    width, inner = table_width(record, at.d_model), inner_width(record, at.d_model)
    looked_up = width + inner * (bool(record.n_token_types) + isinstance(record.positions, Learned))
    products = {name: shape for name, shape in held.items() if name.startswith(("projection", "norm"))}
    kept = inner * (not isinstance(record.norm, NoNorm)) + width * (record.projection != "none")
    return Cost(
        row=matrix(products) * at.tokens,
        step=matrix(products) * at.step,
        read=(size(products) + at.batch * looked_up) if at.writes else 0,
        kept=kept * at.tokens,
    )


def _patches_cost(record: PatchEmbedding, held: Shapes, at: Lengths) -> Cost:
    n_patches = record.n_tokens - record.class_token
    kept = record.patch_size * n_patches + at.d_model * at.tokens * (not isinstance(record.norm, NoNorm))
    return Cost(row=matrix({"patches": held["patches.weight"]}) * n_patches, kept=kept)


def head_cost(head: Head, held: Shapes, vocab_size: int, at: Lengths) -> Cost:
    """Once a token, or once a row where tokens are pooled; a tied head reads the whole table."""
    width = head_width(head, at.d_model)
    times = 1 if pools(head) else at.tokens
    tied = vocab_size * width if getattr(head, "tied", False) else 0
    macs = matrix(held) + tied
    outputs = {"classes": width, "vectors": 0}.get(head.kind, width + vocab_size)  # what the last product keeps
    transform = (at.d_model + 2 * width) if isinstance(head.transform, Transform) else 0
    return Cost(
        row=macs * times,
        step=macs if at.writes else 0,
        read=(size(held) + tied) if at.writes else 0,
        kept=(outputs + transform) * times,
    )


def visible_pairs(mask: Mask, n: int) -> int:
    """How many (query, key) pairs of n tokens a mask lets see; a prefix mask counts as causal.

    >>> from cutaway.spec.attention import CausalMask, SlidingMask
    >>> visible_pairs(CausalMask(), 4), visible_pairs(SlidingMask(window=2), 4)
    (10, 7)
    """
    if mask.kind == "full":
        return n * n
    if mask.kind == "two_sided":
        return 2 * _triangle(n, mask.half_width + 1) - n
    if mask.kind == "chunked":
        chunks, rest = divmod(n, mask.size)
        return chunks * _triangle(mask.size, mask.size) + _triangle(rest, rest)
    return _triangle(n, mask.window if mask.kind == "sliding" else n)


def matrix(held: Shapes) -> int:
    """Multiply-adds a token of all the matrices among some weights."""
    return sum(prod(shape) for shape in held.values() if len(shape) == 2)


def _triangle(n: int, window: int) -> int:
    """sum over i < n of min(i + 1, window)."""
    full = min(n, window)
    return full * (full + 1) // 2 + (n - full) * window


def _attention(part: MultiHead | Latent, held: Shapes, at: Lengths) -> Cost:
    n, macs = sizes(part, at.d_model), matrix(held)
    pair, pairs = n.n_heads * (n.head_dim + n.value_dim), visible_pairs(part.mask, at.tokens)
    last = pairs - visible_pairs(part.mask, at.tokens - 1) if at.cached else pairs
    step = macs * at.step + (pair * last if at.writes else 0)
    if isinstance(part, Latent):
        own, kept = part.kv_rank + part.rope_dim, _kept_latent(part, at.d_model)
        step += prod(held["kv_up.weight"]) * (at.tokens - 1) * at.cached  # each cached latent is opened again
    else:
        borrows = part.share_kv != "none"
        own = 0 if borrows else n.n_kv_heads * (n.head_dim + n.value_dim)
        kept = _kept_heads(part, at.d_model, own) + 2 * n.n_heads * at.tokens * _written_out(part)
    window = part.mask.window if part.mask.kind == "sliding" else at.tokens
    cache = own * at.cached
    return Cost(
        row=macs * at.tokens + pair * pairs, step=step, read=size(held), kept=kept * at.tokens,
        cache_token=cache, cache_row=cache * min(window, at.tokens),
    )  # fmt: skip


def _cross(part: Cross, held: Shapes, at: Lengths) -> Cost:
    """Keys and values are made of the source once; a step makes and reads none of their weights."""
    n = sizes(part, at.d_model)
    of_source = {name: shape for name, shape in held.items() if name.startswith(("k_proj", "v_proj", "k_norm"))}
    own = matrix(held) - matrix(of_source)
    pair, numbers = n.n_heads * (n.head_dim + n.value_dim), n.n_kv_heads * (n.head_dim + n.value_dim)
    kept = _kept_heads(part, at.d_model, 0) + 2 * n.n_heads * at.source * _written_out(part)
    return Cost(
        row=own * at.tokens + matrix(of_source) * at.source + pair * at.tokens * at.source,
        step=(own + pair * at.source) * at.step,
        read=size(held) - size(of_source),
        cache_row=numbers * at.source * at.writes,
        kept=kept * at.tokens + (at.d_model + numbers) * at.source,
    )


def _feed_forward(part: Any, held: Shapes, at: Lengths) -> Cost:
    macs, idle, read = matrix(held), 0, size(held)
    if isinstance(part, MixtureOfExperts):
        expert = part_shapes(part.expert, at.d_model)
        unused = part.n_experts - part.n_active
        met = min(part.n_experts, part.n_active * at.batch)  # at most so many are read for a step of the batch
        macs, idle = macs - unused * matrix(expert), unused * size(expert)
        read -= (part.n_experts - met) * size(expert)
    return Cost(macs * at.tokens, macs * at.step, idle, read, kept=_kept_hidden(part, at.d_model) * at.tokens)


def _written_out(part: MultiHead | Cross) -> bool:
    """Scores and pattern are kept where a fused kernel cannot serve."""
    return part.soft_cap != "none" or (isinstance(part, MultiHead) and part.sinks)


def _kept_heads(part: MultiHead | Cross, d_model: int, own: int) -> int:
    """x, q, own k and v, z a token; once more what is normalised or gated."""
    n = sizes(part, d_model)
    q, z = n.n_heads * n.head_dim, n.n_heads * n.value_dim
    kept = d_model + q + own + z
    if isinstance(part.qk_norm, QKNorm):
        kept += q + (n.n_kv_heads * n.head_dim if own else 0)
    gate = part.output_gate if isinstance(part, MultiHead) else "none"
    return kept + {"none": 0, "per_head": n.n_heads + z, "per_element": 2 * z}[gate]


def _kept_latent(part: Latent, d_model: int) -> int:
    """x, the latents before and after their norms, q, the rebuilt k and v, z a token."""
    heads = part.n_heads * (part.nope_dim + part.rope_dim)
    q_rank = 0 if part.q_rank == "none" else part.q_rank * (1 + (not isinstance(part.q_norm, NoNorm)))
    kv_rank = part.kv_rank * (1 + (not isinstance(part.kv_norm, NoNorm)))
    return d_model + q_rank + kv_rank + 2 * heads + 2 * part.n_heads * part.value_dim


def _kept_hidden(part: Any, d_model: int) -> int:
    """x and each hidden vector that a product, an activation or a multiplication reads, a token."""
    match part:
        case Dense():
            return d_model + 2 * part.d_ff
        case Gated():
            return d_model + 4 * part.d_ff
        case MixtureOfExperts():
            shared = _kept_hidden(part.shared.expert, d_model) if isinstance(part.shared, SharedExpert) else 0
            return d_model + part.n_experts + part.n_active * _kept_hidden(part.expert, d_model) + shared
    return 0
