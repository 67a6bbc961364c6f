"""What a model reads while it is looked into: its ids, the source of an encoder-decoder, and the tokens' names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from cutaway import spec
from cutaway.errors import InputError
from cutaway.models import EncoderDecoder, Transformer
from cutaway.models.example import example
from cutaway.parts.step import NOTHING, Given
from cutaway.tracing.stacks import check_token_head, stack_of


@dataclass(frozen=True)
class Prompt:
    """`ids` [B T] of the stack that the head reads, `source` [B S] of the encoder where there are two stacks.

    Of a model of images, `ids` are images [B C H W]. `name`: the text of an id.
    """

    ids: Int[Tensor, "B T"] | Float[Tensor, "B C H W"]
    source: Int[Tensor, "B S"] | None = None
    name: Callable[[int], str] = "<{}>".format

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens of the first row, as texts in quotes, so that spaces show; those of an image have no names."""
        return () if self.ids.is_floating_point() else tuple(repr(self.name(i)) for i in self.ids[0].tolist())

    @property
    def size(self) -> str:
        """How much there is to read, in words."""
        return "an image" if self.ids.is_floating_point() else f"{self.ids.shape[1]} tokens"

    @property
    def source_words(self) -> tuple[str, ...]:
        return () if self.source is None else tuple(repr(self.name(i)) for i in self.source[0].tolist())

    def given(self, model: Transformer) -> Given:
        """What goes with the ids: the encoder's memory of the source.

        Raises InputError for an encoder-decoder without a source, and any other model with one.
        """
        if isinstance(model, EncoderDecoder):
            if self.source is None:
                raise InputError("prompt: an encoder-decoder reads a source too; give it")
            return Given(memory=model.encode(self.source))
        if self.source is not None:
            raise InputError("prompt: the model has no encoder that could read a source; leave it away")
        return Given()

    def run(self, model: Transformer, last: bool = False) -> Tensor:
        """What the head gives, with `last` for the last column alone. The encoder runs too, and is heard."""
        return model(self.ids, self.given(model), last=last)

    def states(self, model: Transformer, encoder: bool = False) -> Float[Tensor, "B T D"]:
        """What the head reads, or what the encoder makes of the source."""
        stack, _ = stack_of(model, encoder)
        if encoder and self.source is not None:
            return stack.run(self.source, stack.begin(self.source, NOTHING, None))
        given = self.given(model)
        return stack.run(self.ids, stack.begin(self.ids, given, None))

    def repeated(self, n: int) -> Prompt:
        """The one row n times."""
        source = None if self.source is None else self.source.expand(n, -1)
        return replace(self, ids=self.ids.expand(n, -1), source=source)


def check_one_row(prompt: Prompt) -> None:
    """Raise InputError unless there is one row."""
    if len(prompt.ids) != 1 or (prompt.source is not None and len(prompt.source) != 1):
        raise InputError(f"prompt: {len(prompt.ids)} rows; give one text")


def check_asked(model: Transformer, prompt: Prompt, position: int, *tokens: int | None) -> None:
    """Raise InputError for a model without logits of tokens, and a position or a token that is not there."""
    check_token_head(model)
    n, vocab_size = prompt.ids.shape[1], stack_of(model)[0].vocab_size
    if not -n <= position < n:
        raise InputError(f"position {position}: the text has {n} tokens, 0 to {n - 1}")
    for token in tokens:
        if token is not None and not 0 <= token < vocab_size:
            raise InputError(f"token {token}: the vocabulary has the ids 0 to {vocab_size - 1}")


def any_prompt(record: spec.Model, n_tokens: int = 12) -> Prompt:
    """For a model without a tokenizer: ids or an image, the same each time (`models.example`), as source too."""
    ids = example(record, n_tokens)
    return Prompt(ids, ids if isinstance(record, spec.EncoderDecoder) else None)
