"""What a model is: frozen records of plain values, unions told apart by `kind`. Nothing here knows torch.

Read in this order: positions, norms, attention, feedforward, residual, block, embedding, head, model.

>>> from cutaway import spec
>>> attention = spec.MultiHead(n_heads=2, positions=spec.RoPE())
>>> stage = spec.Stage(branches=(spec.Branch(part=attention, norm_in=spec.RMSNorm()),))
>>> layers = (spec.Repeat(times=3, blocks=(spec.Block(stages=(stage,)),)),)
>>> record = spec.Decoder(d_model=8, vocab_size=10, context_length=16, layers=layers)
>>> spec.problems(record), spec.count(record).parameters
([], 872)
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
from cutaway.spec.block import Block, Branch, Repeat, Stage, attentions
from cutaway.spec.checks import Problem, check, problems
from cutaway.spec.compare import differences, mapped, settled
from cutaway.spec.count import Count, count, predicted_reading_per_s, predicted_tokens_per_s
from cutaway.spec.embedding import PatchEmbedding, TokenEmbedding, inner_width, table_width
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
from cutaway.spec.files import load, parse, read, schema, to_json, to_toml
from cutaway.spec.generation import Generation
from cutaway.spec.head import (
    ClassHead,
    LanguageHead,
    MaskedHead,
    NoTransform,
    Transform,
    VectorHead,
    head_width,
    transform_width,
)
from cutaway.spec.model import (
    ADAPTER,
    Decoder,
    Dropout,
    Encoder,
    EncoderDecoder,
    ImageEncoder,
    Model,
    PrefixDecoder,
    Side,
    expand,
    first_stack,
    last_stack,
    stacks,
)
from cutaway.spec.norms import LayerNorm, NoNorm, RMSNorm
from cutaway.spec.override import set_values
from cutaway.spec.pairs import Pair, kinds_in, legal_pairs, pairs_in, placement
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
    attention_factor,
    rotary_dim,
    yarn_mscale,
)
from cutaway.spec.presets import about, names, preset
from cutaway.spec.record import Record
from cutaway.spec.residual import Add, NoResidual
from cutaway.spec.weights import weights

__all__ = [
    "ADAPTER",
    "ALiBi",
    "Add",
    "Block",
    "Branch",
    "ByColumn",
    "CausalMask",
    "ChunkedMask",
    "ClassHead",
    "Count",
    "Cross",
    "Decoder",
    "Dense",
    "Dropout",
    "DynamicScaling",
    "Encoder",
    "EncoderDecoder",
    "FromIds",
    "FromMask",
    "FullMask",
    "Gated",
    "Generation",
    "ImageEncoder",
    "LanguageHead",
    "Latent",
    "LayerNorm",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "LongRopeScaling",
    "MaskedHead",
    "MixtureOfExperts",
    "Model",
    "MultiHead",
    "NoAttention",
    "NoCross",
    "NoFeedForward",
    "NoNorm",
    "NoPositions",
    "NoQKNorm",
    "NoResidual",
    "NoScaling",
    "NoSharedExpert",
    "NoTransform",
    "Pair",
    "PatchEmbedding",
    "PrefixDecoder",
    "PrefixMask",
    "Problem",
    "QKNorm",
    "RMSNorm",
    "Record",
    "Repeat",
    "RoPE",
    "Router",
    "SharedExpert",
    "Side",
    "Sinusoidal",
    "SlidingMask",
    "Stage",
    "T5Buckets",
    "TokenEmbedding",
    "Transform",
    "TwoSidedMask",
    "VectorHead",
    "YarnScaling",
    "about",
    "attention_factor",
    "attentions",
    "check",
    "count",
    "differences",
    "expand",
    "first_stack",
    "gated_d_ff",
    "head_width",
    "inner_width",
    "kinds_in",
    "last_stack",
    "legal_pairs",
    "load",
    "mapped",
    "names",
    "pairs_in",
    "parse",
    "placement",
    "predicted_reading_per_s",
    "predicted_tokens_per_s",
    "preset",
    "problems",
    "read",
    "rotary_dim",
    "schema",
    "set_values",
    "settled",
    "sizes",
    "stacks",
    "table_width",
    "to_json",
    "to_toml",
    "transform_width",
    "weights",
    "yarn_mscale",
]
