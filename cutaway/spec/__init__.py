"""What a model is: frozen records of plain values, unions told apart by `kind`. Nothing here knows torch.

Read in this order: positions, norms, attention, feedforward, residual, block, embedding, head, model.
"""

from cutaway.spec.attention import (
    CausalMask,
    ChunkedMask,
    Cross,
    FullMask,
    Latent,
    MultiHead,
    NoAttention,
    NoCross,
    NoQKNorm,
    PrefixMask,
    QKNorm,
    SlidingMask,
    TwoSidedMask,
    sizes,
)
from cutaway.spec.block import Block, Branch, Repeat, Stage
from cutaway.spec.embedding import TokenEmbedding
from cutaway.spec.feedforward import (
    Dense,
    Gated,
    MixtureOfExperts,
    NoFeedForward,
    NoSharedExpert,
    Router,
    SharedExpert,
    gated_d_ff,
)
from cutaway.spec.generation import Generation
from cutaway.spec.head import ClassHead, LanguageHead, MaskedHead, NoTransform, Transform, VectorHead
from cutaway.spec.model import (
    ADAPTER,
    Decoder,
    Dropout,
    Encoder,
    EncoderDecoder,
    Model,
    PrefixDecoder,
    Side,
    expand,
    stacks,
)
from cutaway.spec.norms import LayerNorm, NoNorm, RMSNorm
from cutaway.spec.positions import (
    ALiBi,
    ByColumn,
    DynamicScaling,
    FromIds,
    FromMask,
    Learned,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    NoPositions,
    NoScaling,
    RoPE,
    Sinusoidal,
    T5Buckets,
    YarnScaling,
)
from cutaway.spec.record import Record
from cutaway.spec.residual import Add, NoResidual

__all__ = [name for name in dir() if not name.startswith("_") and name[0].isupper()] + [
    "expand", "gated_d_ff", "sizes", "stacks",
]  # fmt: skip
