"""A whole model: the root of a spec."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import Field, TypeAdapter

from cutaway.spec.attention import Rate
from cutaway.spec.block import Block, Layer, Repeat
from cutaway.spec.embedding import Embedding, PatchEmbedding, TokenEmbedding
from cutaway.spec.generation import Generation
from cutaway.spec.head import ClassHead, Head, LanguageHead, MaskedHead, VectorHead
from cutaway.spec.norms import NoNorm, Norm
from cutaway.spec.positions import Count
from cutaway.spec.record import Record

Context = Count | Literal["unlimited"]


class Dropout(Record):
    """Share of numbers set to 0 in training (Srivastava et al. 2014): after the embedding, on attention weights,
    on each branch's update, inside the feed-forward network."""

    embedding: Rate = 0.0
    attention: Rate = 0.0
    residual: Rate = 0.0
    hidden: Rate = 0.0


class _Whole(Record):
    """A model shows itself as an outline of its parts."""

    def __str__(self) -> str:
        return str(self._outline())

    def _repr_html_(self) -> str:
        return self._outline()._repr_html_()

    def _outline(self) -> Any:
        from cutaway.spec.outline import outline

        return outline(cast("Model", self))


class _OneStack(_Whole):
    name: str = ""
    d_model: Count
    vocab_size: Count
    context_length: Context
    embedding: Embedding = TokenEmbedding()
    layers: tuple[Layer, ...]
    final_norm: Norm = NoNorm()
    dropout: Dropout = Dropout()
    generation: Generation = Generation()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The layers, repeats written out."""
        return expand(self.layers)


class Decoder(_OneStack):
    """One causal stack that continues a sequence."""

    kind: Literal["decoder"] = "decoder"
    head: Head = LanguageHead()


class PrefixDecoder(_OneStack):
    """One stack that sees all of a prefix and continues it causally."""

    kind: Literal["prefix"] = "prefix"
    head: Head = LanguageHead()


class Encoder(_OneStack):
    """One stack that sees the whole sequence."""

    kind: Literal["encoder"] = "encoder"
    head: Head = MaskedHead()


class ImageEncoder(_Whole):
    """One stack that sees all patches of an image (Dosovitskiy et al. 2020, arXiv:2010.11929)."""

    kind: Literal["image_encoder"] = "image_encoder"
    name: str = ""
    d_model: Count
    embedding: PatchEmbedding
    layers: tuple[Layer, ...]
    final_norm: Norm = NoNorm()
    head: Annotated[ClassHead | VectorHead, Field(discriminator="kind")] = VectorHead()
    dropout: Dropout = Dropout()
    generation: Generation = Generation()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The layers, repeats written out."""
        return expand(self.layers)

    @property
    def vocab_size(self) -> int:
        """An image has no ids."""
        return 0

    @property
    def context_length(self) -> int:
        """How many vectors an image becomes."""
        return self.embedding.n_tokens


class Side(Record):
    """One of the two stacks of an encoder-decoder, with its own vocabulary size and table."""

    vocab_size: Count
    context_length: Context
    embedding: Embedding = TokenEmbedding()
    layers: tuple[Layer, ...]
    final_norm: Norm = NoNorm()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The layers, repeats written out."""
        return expand(self.layers)


class EncoderDecoder(_Whole):
    """An encoder reads the source; a decoder writes the target and looks at it through cross-attention.

    `shared_embedding`: both sides read one table, which the encoder owns: `encoder.embedding.tokens`.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    name: str = ""
    d_model: Count
    encoder: Side
    decoder: Side
    shared_embedding: bool = True
    head: Head = LanguageHead()
    dropout: Dropout = Dropout()
    generation: Generation = Generation()


Model = Decoder | PrefixDecoder | Encoder | EncoderDecoder | ImageEncoder
Spec = Annotated[Model, Field(discriminator="kind")]
ADAPTER: TypeAdapter[Model] = TypeAdapter(Spec)
KINDS: dict[str, type[Model]] = {
    "decoder": Decoder,
    "prefix": PrefixDecoder,
    "encoder": Encoder,
    "encoder_decoder": EncoderDecoder,
    "image_encoder": ImageEncoder,
}


def expand(layers: tuple[Block | Repeat, ...]) -> tuple[Block, ...]:
    """The list of blocks with every repeat written out."""
    out: list[Block] = []
    for layer in layers:
        out.extend([layer] if isinstance(layer, Block) else layer.blocks * layer.times)
    return tuple(out)


def stacks(spec: Model) -> dict[str, Any]:
    """The stacks of a model by the prefix of their names: {'': spec} or {'encoder.': ..., 'decoder.': ...}."""
    if isinstance(spec, EncoderDecoder):
        return {"encoder.": spec.encoder, "decoder.": spec.decoder}
    return {"": spec}


def first_stack(spec: Model) -> Any:
    """The stack that reads a text: the only one, or the encoder."""
    return spec.encoder if isinstance(spec, EncoderDecoder) else spec


def last_stack(spec: Model) -> Any:
    """The stack that the head reads: the only one, or the decoder."""
    return spec.decoder if isinstance(spec, EncoderDecoder) else spec
