"""From the last hidden states to what the model is for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cutaway.spec.feedforward import Activation
from cutaway.spec.norms import NoNorm, Norm
from cutaway.spec.positions import Count, Positive
from cutaway.spec.record import Record


class NoTransform(Record):
    """The hidden states go to the projection as they are."""

    kind: Literal["none"] = "none"


class Transform(Record):
    """norm(activation(W h + b)) before the projection (BERT's masked-token head, its pooler, OPT's narrow output)."""

    kind: Literal["dense"] = "dense"
    width: Count | Literal["d_model"] = "d_model"
    activation: Activation = "identity"
    bias: bool = True
    norm: Norm = NoNorm()


HeadTransform = Annotated[NoTransform | Transform, Field(discriminator="kind")]
Pool = Literal["first", "mean", "last", "eos", "none"]


class LanguageHead(Record):
    """cap(logit_factor * (transform(input_factor * h) W^T + b)): the logits of the next (or the masked) token.

    `tied` reads W from the embedding's table. `input_factor` 1/sqrt(d_model) is T5's when tied. With `soft_cap` c:
    c tanh(logits / c).
    """

    kind: Literal["language"] = "language"
    tied: bool = True
    bias: bool = False
    transform: HeadTransform = NoTransform()
    input_factor: Positive | Literal["1/sqrt_d_model"] = 1.0
    logit_factor: Positive = 1.0
    soft_cap: Positive | Literal["none"] = "none"


class MaskedHead(Record):
    """The logits of masked tokens (Devlin et al. 2018, arXiv:1810.04805)."""

    kind: Literal["masked"] = "masked"
    tied: bool = True
    bias: bool = True
    transform: HeadTransform = NoTransform()
    logit_factor: Positive = 1.0


class ClassHead(Record):
    """n_classes numbers for a row, from the pooled state, or for each token where pool is none.

    pool: the first token, the mean over real tokens, the last real token, the last `eos_id`. `labels` name the
    classes. `problem` says what the numbers are: logits of classes that exclude each other (softmax), of classes that
    do not (a sigmoid each), or values.
    """

    kind: Literal["classes"] = "classes"
    n_classes: Count
    pool: Pool = "first"
    eos_id: Annotated[int, Field(ge=0)] = 0
    transform: HeadTransform = NoTransform()
    bias: bool = True
    labels: tuple[str, ...] = ()
    problem: Literal["single_label", "multi_label", "regression"] = "single_label"


class VectorHead(Record):
    """The hidden states themselves: one a token (pool none) or one a row, of length 1 where `normalise`.

    `pooler`: a transform of the first real token's state that a checkpoint carries beside them (BERT's); the tap
    `head.pooled` shows what it gives.
    """

    kind: Literal["vectors"] = "vectors"
    pool: Pool = "none"
    eos_id: Annotated[int, Field(ge=0)] = 0
    transform: HeadTransform = NoTransform()
    normalise: bool = False
    pooler: HeadTransform = NoTransform()


Head = Annotated[LanguageHead | MaskedHead | ClassHead | VectorHead, Field(discriminator="kind")]


def pools(head: Head) -> bool:
    """Whether a head gives one answer a row, not one a token."""
    return isinstance(head, (ClassHead, VectorHead)) and head.pool != "none"


def head_width(head: Head, d_model: int) -> int:
    """The width of the states that a head's last matrix reads."""
    return transform_width(head.transform, d_model)


def transform_width(record: HeadTransform, d_model: int) -> int:
    """The width of the states that a head's transform gives."""
    return record.width if isinstance(record, Transform) and record.width != "d_model" else d_model
