"""What a model costs, told from its spec: weights, FLOPs, cache and activations, part by part.

A multiply-add is 2 FLOPs; counted are the matrix products alone, backward twice forward. Attention is counted over the
pairs that its mask lets see, a prefix mask as causal. A row is one sequence of `tokens`, in an encoder-decoder with one
source of `source_tokens`. A decoder with a full mask keeps nothing and recomputes. Latent attention opens its cached
latents again at each step. Activations are what an eager forward pass keeps: the inputs of matrix products, norms and
activations, q, k, v, z, the factors of products, and the logits; scores and pattern where a soft cap or sinks forbid
the fused kernel; not dropout's masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cutaway.errors import SpecError
from cutaway.spec.block import attentions
from cutaway.spec.costs import Cost, Lengths, branch_cost, embedding_cost, head_cost
from cutaway.spec.head import LanguageHead
from cutaway.spec.model import EncoderDecoder, ImageEncoder, Model, stacks
from cutaway.spec.norms import NoNorm
from cutaway.spec.positions import MOST
from cutaway.spec.weights import part_weights, size

FLOATS = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
PACKED = {
    "q8_0": 34 / 32, "q6_k": 210 / 256, "q5_1": 24 / 32, "q5_0": 22 / 32, "q5_k": 176 / 256,
    "q4_1": 20 / 32, "q4_0": 18 / 32, "q4_k": 144 / 256,
}  # fmt: skip
BYTES = FLOATS | PACKED


@dataclass(frozen=True)
class PartCount:
    """One part's cost for one row. `active`: weights that a token meets; `forward_flops`: of the row;
    `decode_flops`: of its last token when the others are cached; `read_bytes`: weights that a decoding step reads;
    cache a token and at the row's length; activations of the row."""

    path: str
    parameters: int
    active: int
    forward_flops: int
    decode_flops: int
    weight_bytes: float
    read_bytes: float
    cache_bytes_per_token: float
    cache_bytes: float
    activation_bytes: float


@dataclass(frozen=True)
class Count:
    """The cost of a model: the sums over its parts, and the parts.

    FLOPs are a token's: forward and backward the mean over a row of `tokens`, decode those of the row's last one.
    `read_bytes`: weights that one decoding step of the batch reads. `cache_bytes_per_token`: what one more token of
    one row adds while no window is full. Cache and activations are the whole batch's.
    """

    parameters: int
    active_parameters: int
    forward_flops: float
    backward_flops: float
    decode_flops: float
    weight_bytes: float
    read_bytes: float
    cache_bytes_per_token: float
    cache_bytes: float
    activation_bytes: float
    tokens: int
    source_tokens: int
    batch: int
    dtype: str
    parts: tuple[PartCount, ...]


def count(
    spec: Model, tokens: int = 1024, batch: int = 1, dtype: str = "float32", source_tokens: int | None = None
) -> Count:
    """The cost of a spec at a length; the source of an encoder-decoder is as long as the target unless said.
    An image has the length that its patches make.

    Cache and activations are of `dtype`, or float32 beside packed weights (q8_0, q4_1 ...). Raises SpecError for an
    unknown dtype and for lengths below 1.

    >>> from cutaway.spec.presets import preset
    >>> count(preset("gpt2")).parameters
    124439808
    """
    if dtype not in BYTES:
        raise SpecError(f"dtype: '{dtype}' is not one of {', '.join(BYTES)}")
    if isinstance(spec, ImageEncoder):
        tokens = spec.context_length
    source = tokens if source_tokens is None else source_tokens
    for name, value in (("tokens", tokens), ("source_tokens", source), ("batch", batch)):
        if value < 1:
            raise SpecError(f"{name}: {value} is less than 1")
        if value > MOST:
            raise SpecError(f"{name}: {str(value)[:20]}... is more than {MOST:,}")
    parts = tuple(_parts(spec, tokens, source, batch, dtype))

    def total(field: str) -> float:
        return sum(getattr(part, field) for part in parts)

    forward = total("forward_flops") / tokens
    return Count(
        parameters=int(total("parameters")), active_parameters=int(total("active")),
        forward_flops=forward, backward_flops=2 * forward, decode_flops=total("decode_flops"),
        weight_bytes=total("weight_bytes"), read_bytes=total("read_bytes"),
        cache_bytes_per_token=total("cache_bytes_per_token"), cache_bytes=batch * total("cache_bytes"),
        activation_bytes=batch * total("activation_bytes"),
        tokens=tokens, source_tokens=source, batch=batch, dtype=dtype, parts=parts,
    )  # fmt: skip


def predicted_tokens_per_s(cost: Count, bandwidth: float, flop_rate: float = math.inf) -> float:
    """Tokens a second that the whole batch writes: batch / max(bytes / bandwidth, FLOP / flop_rate) of a step.

    A step reads the weights once and every row's cache. `bandwidth` in bytes a second; without a `flop_rate` decoding
    waits for memory alone. Raises SpecError for a model that writes no text.
    """
    if not cost.decode_flops:
        raise SpecError("tokens a second: this model writes no text; only one with a language head is predicted")
    waits = (cost.read_bytes + cost.cache_bytes) / bandwidth
    return cost.batch / max(waits, cost.batch * cost.decode_flops / flop_rate)


def predicted_reading_per_s(cost: Count, flop_rate: float) -> float:
    """Tokens a second of reading a text: flop_rate / FLOP a token. Where text is written, only the last token passes
    the head, and an encoder-decoder reads its source."""
    parts = [part for part in cost.parts if part.path != "head" and not part.path.startswith("decoder.")]
    forward = sum(part.forward_flops for part in parts)
    if not cost.decode_flops:
        forward = cost.forward_flops * cost.tokens
    read = cost.source_tokens if parts[0].path.startswith("encoder.") else cost.tokens
    return flop_rate * read / forward


def _parts(spec: Model, tokens: int, source: int, batch: int, dtype: str) -> Iterator[PartCount]:
    for path, parameters, cost in _costs(spec, tokens, source, batch):
        weight, number = BYTES[dtype], FLOATS.get(dtype, 4.0)
        yield PartCount(
            path, parameters, parameters - cost.idle, 2 * cost.row, 2 * cost.step,
            parameters * weight, cost.read * weight,
            cost.cache_token * number, cost.cache_row * number, cost.kept * number,
        )  # fmt: skip


def _costs(spec: Model, tokens: int, source: int, batch: int) -> Iterator[tuple[str, int, Cost]]:
    held = part_weights(spec)
    for prefix, stack in stacks(spec).items():
        at = _lengths(spec, prefix, (tokens, source, batch))
        path = f"{prefix}embedding"
        yield path, size(held[path]), embedding_cost(stack, held[path], at)
        for index, block in enumerate(stack.blocks):
            for stage in block.stages:
                for number, branch in enumerate(stage.branches):
                    path = f"{prefix}blocks.{index}.{branch.name}"
                    own = (stage.norm, stage.norm_sum) if number == 0 else ()
                    cost = branch_cost(branch.part, (branch.norm_in, branch.norm_out, *own), held[path], at)
                    yield path, size(held[path]), cost
        for name, kept in (("relative_bias", 0), ("final_norm", _width(stack.final_norm, spec.d_model))):
            numbers = size(held[f"{prefix}{name}"])
            yield f"{prefix}{name}", numbers, Cost(read=numbers * at.writes, kept=kept * at.tokens)
    target, prefix = (spec.decoder, "decoder.") if isinstance(spec, EncoderDecoder) else (spec, "")
    at = _lengths(spec, prefix, (tokens, source, batch))
    yield "head", size(held["head"]), head_cost(spec.head, held["head"], target.vocab_size, at)


def _lengths(spec: Model, prefix: str, row: tuple[int, int, int]) -> Lengths:
    tokens, source, batch = row
    writes = isinstance(spec.head, LanguageHead) and prefix != "encoder."
    cached = writes and not _sees_all(stacks(spec)[prefix])
    return Lengths(spec.d_model, source if prefix == "encoder." else tokens, source, batch, writes, cached)


def _sees_all(stack: Any) -> bool:
    """Whether a layer looks ahead, so that what was read cannot be kept."""
    return any(part.mask.kind == "full" for part in attentions(stack.blocks))


def _width(norm: object, d_model: int) -> int:
    return 0 if isinstance(norm, NoNorm) else d_model
