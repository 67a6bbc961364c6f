"""Rules across fields and parts: what is wrong with a spec that is well formed, and which values would be legal.

Masks. A decoder's layers may be causal, sliding or chunked, or full: that is what removing the mask leaves, and
generation then recomputes each step. A prefix model's may be prefix as well. An encoder may use any mask but prefix: a
causal one only narrows what a token sees. Cross-attention (and its removed form) stands in the decoder of an
encoder-decoder alone. A block has at most one branch of each name, since weights are named by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cutaway.errors import SpecError
from cutaway.spec.attention import Cross, Latent, MultiHead, NoCross, sizes
from cutaway.spec.block import Block, Layer, Repeat, Stage
from cutaway.spec.embedding import PatchEmbedding, TokenEmbedding, inner_width, table_width
from cutaway.spec.head import ClassHead, LanguageHead, MaskedHead, head_width
from cutaway.spec.model import EncoderDecoder, ImageEncoder, Model, last_stack, stacks
from cutaway.spec.norms import NoNorm
from cutaway.spec.part_checks import Problem, divisors, part_problems
from cutaway.spec.positions import FromIds, Learned, NoPositions, Sinusoidal, T5Buckets
from cutaway.spec.residual import Add

MASKS = {
    "decoder": ("full", "causal", "sliding", "chunked"),
    "prefix": ("full", "causal", "prefix", "sliding", "chunked"),
    "encoder": ("full", "causal", "sliding", "two_sided", "chunked"),
    "image_encoder": ("full", "causal", "sliding", "two_sided", "chunked"),
}
HEADS = {
    "decoder": ("language", "classes", "vectors"),
    "prefix": ("language", "classes", "vectors"),
    "encoder": ("masked", "classes", "vectors"),
    "image_encoder": ("classes", "vectors"),
    "encoder_decoder": ("language", "classes", "vectors"),
}
MOST = 4


def check(spec: Model, where: str = "spec") -> None:
    """Raise SpecError that names the problems of a spec and the legal values, if it has any."""
    if not isinstance(spec, Model):
        raise SpecError(f"{where}: {str(spec)[:40]!r} is no spec; preset() and load() give one")
    found = problems(spec)
    if found:
        told = [f"{where}.{problem}" for problem in found[:MOST]]
        rest = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
        raise SpecError("; ".join(told + rest))


def problems(spec: Model) -> list[Problem]:
    """Every illegal combination in a spec, once each, in the order of its fields."""
    found: list[Problem] = []
    for prefix, stack in stacks(spec).items():
        role = prefix.removesuffix(".") or spec.kind
        place = _Place(spec.d_model, role, crosses=prefix == "decoder.", at=prefix)
        found += (
            _patches(stack.embedding, spec.d_model)
            if isinstance(stack.embedding, PatchEmbedding)
            else _embedding(stack, place)
        )
        found += _stack(written(stack.layers, f"{prefix}layers"), place)
    if isinstance(spec, EncoderDecoder) and spec.shared_embedding:
        found += _shared_embedding(spec)
    found += _head(spec)
    found += _generation(spec)
    return list(dict.fromkeys(found))


def written(layers: tuple[Layer, ...], at: str) -> list[tuple[str, Block]]:
    """Each block of a stack in running order, with the path where the spec writes it."""
    out: list[tuple[str, Block]] = []
    for index, layer in enumerate(layers):
        if isinstance(layer, Repeat):
            pattern = [(f"{at}.{index}.blocks.{n}", block) for n, block in enumerate(layer.blocks)]
            out += pattern * layer.times
        else:
            out.append((f"{at}.{index}", layer))
    return out


class _Place(NamedTuple):
    """What a stack's parts must fit: the width, what the stack is, whether an encoder stands beside it."""

    d_model: int
    role: str
    crosses: bool
    at: str


def _patches(record: PatchEmbedding, d_model: int) -> Iterator[Problem]:
    for side in ("height", "width"):
        image, patch = getattr(record, f"image_{side}"), getattr(record, f"patch_{side}")
        if image % patch:
            message = f"patches of {patch} do not fill an image_{side} of {image}"
            yield Problem(f"embedding.patch_{side}", message, divisors(image))
    places = record.positions
    if isinstance(places, NoPositions):
        return
    if isinstance(places.counted, FromIds):
        yield Problem("embedding.positions.counted.kind", "an image has no ids to count", ("mask", "column"))
    if isinstance(places, Learned) and places.n_positions < record.n_tokens:
        message = f"{places.n_positions} learned positions are less than the {record.n_tokens} vectors of an image"
        yield Problem("embedding.positions.n_positions", message, (f"at least {record.n_tokens}",))
    yield from _waves(places, d_model, "embedding")


def _waves(places: Any, width: int, at: str) -> Iterator[Problem]:
    if isinstance(places, Sinusoidal) and places.frequencies == "closed" and width % 2:
        yield Problem(f"{at}.positions.frequencies", f"the closed form needs an even width, not {width}", ("paper",))


def _embedding(stack: Any, place: _Place) -> Iterator[Problem]:
    record: TokenEmbedding = stack.embedding
    at, width = f"{place.at}embedding", table_width(record, place.d_model)
    if record.projection == "none":
        if width != place.d_model:
            message = f"a table of width {width} needs a projection to d_model {place.d_model}"
            yield Problem(f"{at}.projection", message, ("before_positions", "after_norm"))
        if record.projection_bias:
            yield Problem(f"{at}.projection_bias", "there is no projection to have a bias", (False,))
    inner, places = inner_width(record, place.d_model), record.positions
    yield from _waves(places, inner, at)
    if isinstance(places, Learned):
        yield from _learned(places, stack.context_length, place.at)
    if not isinstance(places, NoPositions) and isinstance(places.counted, FromIds):
        rows = places.n_positions + places.offset if isinstance(places, Learned) else stack.vocab_size
        most = min(rows, stack.vocab_size)
        if places.counted.pad_id >= most:
            message = f"{places.counted.pad_id} is no id of the vocabulary or no row of the table"
            yield Problem(f"{at}.positions.counted.pad_id", message, (f"at most {most - 1}",))


def _learned(places: Learned, context: int | str, at: str) -> Iterator[Problem]:
    if context == "unlimited":
        message = f"a learned table ends after {places.n_positions} positions"
        yield Problem(f"{at}context_length", message, (f"at most {places.n_positions}",))
    elif places.n_positions < int(context):
        message = f"{places.n_positions} learned positions are less than context_length {context}"
        yield Problem(f"{at}embedding.positions.n_positions", message, (f"at least {context}",))


def _stack(blocks: list[tuple[str, Block]], place: _Place) -> Iterator[Problem]:
    for path, block in blocks:
        yield from _block(block, place, path)
    yield from _shared_keys(blocks, place)
    yield from _bucket_tables(blocks)


def _block(block: Block, place: _Place, at: str) -> Iterator[Problem]:
    names: set[str] = set()
    for index, stage in enumerate(block.stages):
        yield from _stage(stage, f"{at}.stages.{index}")
        for number, branch in enumerate(stage.branches):
            path, part = f"{at}.stages.{index}.branches.{number}.part", branch.part
            if branch.name in names:
                yield Problem(f"{path}.kind", f"a second '{branch.name}' in one block", _other_parts(names, place))
            names.add(branch.name)
            if isinstance(part, (Cross, NoCross)) and not place.crosses:
                message = "only the decoder of an encoder-decoder has an encoder to look at"
                yield Problem(f"{path}.kind", message, _other_parts({"cross"}, place))
            if isinstance(part, (MultiHead, Latent)) and part.mask.kind not in MASKS[place.role]:
                message = f"a {part.mask.kind} mask has no place in {_a(place.role)}"
                yield Problem(f"{path}.mask.kind", message, MASKS[place.role])
            yield from part_problems(part, place.d_model, path)


def _other_parts(taken: set[str], place: _Place) -> tuple[str, ...]:
    parts: dict[str, tuple[str, ...]] = {
        "attn": ("multi_head", "latent", "no_attn"),
        "ffn": ("dense", "gated", "moe", "no_ffn"),
    }
    if place.crosses:
        parts["cross"] = ("cross", "no_cross")
    free = tuple(kind for name, kinds in parts.items() if name not in taken for kind in kinds)
    return free or ("no further branch",)


def _stage(stage: Stage, at: str) -> Iterator[Problem]:
    own = [n for n, branch in enumerate(stage.branches) if not isinstance(branch.norm_in, NoNorm)]
    if own and not isinstance(stage.norm, NoNorm):
        message = "a stage has one norm for all its branches, or each branch its own norm_in"
        yield Problem(f"{at}.norm.kind", message, ("none",))
    if own and isinstance(stage.residual, Add) and stage.residual.skip == "normed":
        message = "the normed input is that of the stage's norm, but the branches have their own norm_in"
        yield Problem(f"{at}.residual.skip", message, ("x",))


def _shared_keys(blocks: list[tuple[str, Block]], place: _Place) -> Iterator[Problem]:
    """A layer may read the keys and values of an earlier one that has its own, and the same sizes, mask, positions."""
    lenders: dict[int, MultiHead] = {}
    for index, (path, block) in enumerate(blocks):
        for name, part in _attentions(block, path):
            if not isinstance(part, MultiHead):
                continue
            if part.share_kv == "none":
                lenders[index] = part
            elif part.share_kv not in lenders or not _fits(part, lenders[part.share_kv], place.d_model):
                legal = tuple(n for n, lender in lenders.items() if _fits(part, lender, place.d_model))
                message = (
                    f"layer {part.share_kv} is no earlier layer with own keys and values of the same heads, "
                    "widths, mask and positions"
                )
                yield Problem(f"{name}.share_kv", message, (*legal, "none"))


def _fits(part: MultiHead, lender: MultiHead, d_model: int) -> bool:
    mine, theirs = sizes(part, d_model), sizes(lender, d_model)
    return mine[1:4] == theirs[1:4] and (part.mask, part.positions) == (lender.mask, lender.positions)


def _bucket_tables(blocks: list[tuple[str, Block]]) -> Iterator[Problem]:
    """All layers of a stack that have T5 buckets read one table."""
    first: tuple[str, MultiHead | Latent] | None = None
    for path, block in blocks:
        for name, part in _attentions(block, path):
            if not isinstance(part.positions, T5Buckets):
                continue
            if first is None:
                first = name, part
            elif part.n_heads != first[1].n_heads:
                message = f"one table of T5 biases serves the stack, and {first[0]} has {first[1].n_heads} heads"
                yield Problem(f"{name}.n_heads", message, (first[1].n_heads,))
            else:
                for field, value in first[1].positions:
                    if getattr(part.positions, field) != value:
                        message = f"one table of T5 biases serves the stack, and {first[0]} has {field} {value}"
                        yield Problem(f"{name}.positions.{field}", message, (value,))


def _attentions(block: Block, at: str) -> Iterator[tuple[str, MultiHead | Latent]]:
    for index, stage in enumerate(block.stages):
        for number, branch in enumerate(stage.branches):
            if isinstance(branch.part, (MultiHead, Latent)):
                yield f"{at}.stages.{index}.branches.{number}.part", branch.part


def _shared_embedding(spec: EncoderDecoder) -> Iterator[Problem]:
    encoder, decoder = spec.encoder, spec.decoder
    if encoder.vocab_size != decoder.vocab_size:
        message = f"one table cannot serve {encoder.vocab_size} source and {decoder.vocab_size} target tokens"
        yield Problem("shared_embedding", message, (False,))
    widths = [table_width(side.embedding, spec.d_model) for side in (encoder, decoder)]
    if widths[0] != widths[1]:
        message = f"one table cannot have the widths {widths[0]} and {widths[1]}"
        yield Problem("shared_embedding", message, (False,))


def _head(spec: Model) -> Iterator[Problem]:
    head = spec.head
    if head.kind not in HEADS[spec.kind]:
        yield Problem("head.kind", f"a {head.kind} head has no place in {_a(spec.kind)}", HEADS[spec.kind])
    target = last_stack(spec)
    if isinstance(head, (LanguageHead, MaskedHead)):
        width, table = head_width(head, spec.d_model), table_width(target.embedding, spec.d_model)  # pyrefly: ignore
        if head.tied and width != table:
            message = f"the head reads states of width {width}, the embedding's table has width {table}"
            yield Problem("head.tied", message, (False,))
    elif head.pool == "eos" and isinstance(spec, ImageEncoder):
        yield Problem("head.pool", "an image has no end token", ("first", "mean", "last", "none"))
    elif head.pool == "eos" and head.eos_id >= target.vocab_size:
        message = f"{head.eos_id} is no id of the vocabulary"
        yield Problem("head.eos_id", message, (f"at most {target.vocab_size - 1}",))
    if isinstance(head, ClassHead) and head.labels and len(head.labels) != head.n_classes:
        message = f"{len(head.labels)} labels for {head.n_classes} classes"
        yield Problem("head.labels", message, (f"{head.n_classes} names or none",))


def _generation(spec: Model) -> Iterator[Problem]:
    vocab_size = last_stack(spec).vocab_size
    for name, value in spec.generation:
        if not name.endswith(("_id", "_ids")) or value == "none":
            continue
        wrong = [one for one in (value if isinstance(value, tuple) else (value,)) if one >= vocab_size]
        if wrong:
            message = f"{wrong[0]} is no id of the vocabulary of {vocab_size}"
            yield Problem(f"generation.{name}", message, (f"at most {vocab_size - 1}" if vocab_size else "none",))


def _a(kind: str) -> str:
    kind = kind.replace("_", " ")
    return f"an {kind}" if kind[0] in "ei" else f"a {'prefix model' if kind == 'prefix' else kind}"
