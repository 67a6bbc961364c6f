"""Records in plain words: what a reader calls them, with the numbers that tell two of a kind apart."""

from __future__ import annotations

from typing import Any

from cutaway.spec.attention import Cross, Latent, Mask, MultiHead, QKNorm, sizes
from cutaway.spec.embedding import PatchEmbedding, TokenEmbedding, table_width
from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts, SharedExpert
from cutaway.spec.head import ClassHead, Head, LanguageHead, MaskedHead, Transform, VectorHead
from cutaway.spec.norms import LayerNorm, NoNorm, RMSNorm
from cutaway.spec.positions import ALiBi, FromIds, FromMask, Learned, NoScaling, RoPE, Sinusoidal, T5Buckets
from cutaway.spec.record import Record
from cutaway.spec.residual import Add

ACTIVATIONS = {
    "relu": "ReLU", "relu2": "squared ReLU", "gelu": "GELU", "gelu_tanh": "GELU (tanh form)",
    "quick_gelu": "quick GELU", "silu": "SiLU", "tanh": "tanh", "sigmoid": "sigmoid", "identity": "no activation",
    "removed": "the gate removed",
}  # fmt: skip
GATED = {"silu": "SwiGLU", "gelu": "GeGLU", "gelu_tanh": "GeGLU (tanh form)", "relu": "ReGLU", "identity": "bilinear"}
SCALINGS = {
    "linear": "linear", "dynamic": "dynamic NTK", "yarn": "YaRN", "llama3": "Llama 3's", "longrope": "LongRoPE",
}  # fmt: skip


USUAL = "divided by sqrt(head width)"


def number(value: float) -> str:
    """12288 as 12,288, 1e-05 as 1e-5, 0.5 as it is."""
    if isinstance(value, int) or (value >= 1000 and value == int(value)):
        return f"{int(value):,}"
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def counted(n: float) -> str:
    """134,515,008; beyond 10^15 three digits, 6.40e19."""
    if n < 1e15:
        return f"{n:,.0f}"
    mantissa, _, exponent = f"{n:.2e}".partition("e+")
    return f"{mantissa}e{exponent}"


def scaled(n: float, unit: str) -> str:
    """538 MB, 46.1 kB, 12 B: three digits and a decimal prefix; beyond those 1.02e33 B."""
    if n >= 0.9995e21:
        return f"{counted(n)} {unit}".rstrip()
    for prefix, size in (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= 0.9995 * size:
            x = n / size
            return f"{x:,.{2 if x < 9.995 else 1 if x < 99.95 else 0}f} {prefix}{unit}"
    return f"{n:.0f} {unit}".rstrip()


def joined(*parts: str) -> str:
    """What is said, with commas between."""
    return ", ".join(part for part in parts if part)


def norm(record: Any) -> str:
    """LayerNorm with gain and shift (eps 1e-5)."""
    match record:
        case LayerNorm():
            learned = " and ".join(name for name in ("gain", "shift") if getattr(record, name))
            return f"LayerNorm {f'with {learned}' if learned else 'that learns nothing'} (eps {number(record.eps)})"
        case RMSNorm():
            gain = {"plain": "with gain", "one_plus": "with gain 1 + g", "none": "that learns nothing"}[record.gain]
            return f"RMSNorm {gain} (eps {number(record.eps)})"
    return "none"


def mask(record: Mask) -> str:
    """Who sees whom."""
    match record.kind:
        case "sliding":
            return f"causal, window of {number(record.window)}"
        case "two_sided":
            return f"{number(record.half_width)} tokens to both sides"
        case "chunked":
            return f"causal, in chunks of {number(record.size)}"
    return {"full": "every token sees all", "causal": "causal", "prefix": "causal beyond the prefix"}[record.kind]


def positions(record: Any) -> str:
    """Where a token stands, absolute or relative; none is ''."""
    match record:
        case Sinusoidal():
            layout = "sines and cosines in turn" if record.layout == "interleaved" else "sines first"
            closed = "closed frequencies" if record.frequencies == "closed" else ""
            return f"sinusoidal ({joined(layout, f'base {number(record.base)}', closed, _rows(record))})"
        case Learned():
            return f"a learned table ({joined(f'{number(record.n_positions)} rows', _rows(record))})"
        case RoPE():
            pairs = "neighbours paired" if record.layout == "interleaved" else "halves paired"
            part = "" if record.rotary_dim == "head" else f"{record.rotary_dim} numbers of a head"
            return f"RoPE ({joined(f'base {number(record.base)}', pairs, part, _scaling(record.scaling))})"
        case ALiBi():
            return f"ALiBi{_in_brackets(listed(record))}"
        case T5Buckets():
            ways = "both ways" if record.bidirectional else "backwards"
            return f"T5 buckets ({record.n_buckets} up to distance {number(record.max_distance)}, {ways})"
    return ""


def attention(part: Any, d_model: int) -> dict[str, str]:
    """An attention by aspect, the usual choices of an aspect being ''."""
    if not isinstance(part, (MultiHead, Latent, Cross)):
        return {"heads": "none"}
    n, said = sizes(part, d_model), {"heads": _heads(part, d_model)}
    if not isinstance(part, Cross):
        said["mask"], said["positions"] = mask(part.mask), positions(part.positions)
    said["scores"] = "as they are" if part.scale == 1.0 else f"multiplied by {number(n.scale)}"
    if part.scale == "auto":
        said["scores"] = USUAL
    biases = [name for name in ("q", "k", "v", "o", "down") if getattr(part, f"{name}_bias", False)]
    said["biases"] = f"on {', '.join(biases)}" if biases else ""
    if not isinstance(part, Latent):
        said["QK norm"] = _qk_norm(part.qk_norm)
        said["soft cap"] = "" if part.soft_cap == "none" else number(part.soft_cap)
    if isinstance(part, MultiHead):
        said["clip"] = "" if part.clip == "none" else f"of q, k, v at {number(part.clip)}"
        said["sinks"] = "one a head" if part.sinks else ""
        gate = {"none": "", "per_head": "one a head", "per_element": "one a number"}
        said["output gate"] = gate[part.output_gate]
        said["keys and values"] = "" if part.share_kv == "none" else f"of layer {part.share_kv}"
    return said


def part(record: Any, d_model: int) -> str:
    """An attention or feed-forward network in one phrase, the usual left out."""
    if isinstance(record, (Dense, Gated, MixtureOfExperts)):
        return feed_forward(record)
    said = attention(record, d_model)
    first = [said.pop(aspect, "") for aspect in ("heads", "mask", "positions")]
    return joined(*first, *(f"{aspect} {text}" for aspect, text in said.items() if text not in ("", USUAL)))


def feed_forward(part: Any) -> str:
    """A feed-forward network in one phrase."""
    match part:
        case Dense():
            act = ACTIVATIONS[part.activation]
            return joined("two matrices", f"{number(part.d_ff)} wide", act, _biases(part, ("up", "down")))
        case Gated():
            name = GATED.get(part.activation) or f"gated, {ACTIVATIONS[part.activation]}"
            more = listed(part, ("clamp", "alpha", "up_offset"))
            return joined(name, f"{number(part.d_ff)} wide", _biases(part, ("gate", "up", "down")), more)
        case MixtureOfExperts():
            shared = "no shared expert"
            if isinstance(part.shared, SharedExpert):
                gate = "gated, " if part.shared.gated else ""
                shared = f"a shared expert ({gate}{feed_forward(part.shared.expert)})"
            balance = f"load balance {number(part.load_balance)}" if part.load_balance else ""
            router = f"router: {joined(part.router.score.replace('_', ' '), listed(part.router, without=('score',)))}"
            head = f"{part.n_experts} experts, {part.n_active} a token"
            return joined(f"{head} ({feed_forward(part.expert)})", shared, router, balance)
    return "none"


def embedding(record: TokenEmbedding | PatchEmbedding, d_model: int) -> dict[str, str]:
    """An embedding by aspect."""
    if isinstance(record, PatchEmbedding):
        return _patches(record)
    where = {"none": "", "before_positions": " before positions are added", "after_norm": " last"}[record.projection]
    bias = " with a bias" if record.projection_bias else ""
    width = number(table_width(record, d_model))
    projected = f", projected from {width} numbers{where}{bias}" if record.projection != "none" else ""
    factor = "sqrt(d_model)" if record.factor == "sqrt_d_model" else number(record.factor)
    types = f"{record.n_token_types} token types" if record.n_token_types else ""
    return {
        "embedding": joined(f"times {factor}" if factor != "1" else "rows of the table", types) + projected,
        "embedding norm": norm(record.norm),
        "positions": positions(record.positions),
    }


def _patches(record: PatchEmbedding) -> dict[str, str]:
    image, patch = ((record.image_height, record.image_width), (record.patch_height, record.patch_width))
    sizes = [" by ".join(number(side) for side in each) for each in (patch, image)]
    channels = f"{record.n_channels} channels" if record.n_channels > 1 else "1 channel"
    return {
        "embedding": joined(
            f"patches of {sizes[0]} out of {sizes[1]}, {channels}", "" if record.bias else "no bias",
            "a class token first" if record.class_token else "no class token",
        ),
        "embedding norm": norm(record.norm),
        "positions": positions(record.positions),
    }  # fmt: skip


def head(record: Head) -> str:
    """What is made of the last states."""
    transform = _transform(record.transform)
    match record:
        case LanguageHead() | MaskedHead():
            what = "the next token" if isinstance(record, LanguageHead) else "masked tokens"
            matrix = "the embedding's table (tied)" if record.tied else "a matrix of its own"
            more = listed(record, without=("tied", "transform", "bias"))
            return joined(f"logits of {what} by {matrix}", "a bias" if record.bias else "no bias", transform, more)
        case ClassHead():
            bias = "a bias" if record.bias else "no bias"
            what = {"single_label": "classes", "multi_label": "classes that may be several", "regression": "values"}
            named = f"named {', '.join(record.labels)}" if record.labels else ""
            return joined(f"{record.n_classes} {what[record.problem]}, {_pool(record)}", bias, transform, named)
    pooler = f"beside them a pooler {_transform(record.pooler)}" if isinstance(record.pooler, Transform) else ""
    return joined(f"vectors, {_pool(record)}", "of length 1" if record.normalise else "", transform, pooler)


def residual(record: Any) -> str:
    """How a branch joins the stream."""
    if not isinstance(record, Add):
        return "none: the branch alone goes on"
    factor = {"scalar": "a learned number times ", "channel": "a learned vector times "}.get(str(record.scale), "")
    if not isinstance(record.scale, str) and record.scale != 1.0:
        factor = f"{number(record.scale)} times "
    return f"{'the normed x' if record.skip == 'normed' else 'x'} + {factor}the branch"


def listed(record: Record, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> str:
    """The fields that are not at their defaults, as `name value`."""
    said = []
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if name == "kind" or name in without or (only and name not in only):
            continue
        if field.is_required() or value != field.get_default(call_default_factory=True):
            said.append(_field(name.replace("_", " "), value))
    return ", ".join(said)


def _field(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"{name} off"
    if isinstance(value, tuple):
        return f"{name} {', '.join(map(_value, value)) or 'none'}"
    return f"{name} {_value(value)}"


def _value(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) else repr(value) if " " in value else str(value)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _rows(record: Sinusoidal | Learned) -> str:
    offset = f"from row {record.offset}" if record.offset else ""
    match record.counted:
        case FromMask():
            counted = ""
        case FromIds(pad_id=pad):
            counted = f"counted over ids other than {pad}"
        case _:
            counted = "counted by column"
    return joined(offset, counted)


def _scaling(record: Any) -> str:
    if isinstance(record, NoScaling):
        return ""
    return f"{SCALINGS[record.kind]} scaling: {listed(record)}"


def _heads(part: MultiHead | Latent | Cross, d_model: int) -> str:
    n = sizes(part, d_model)
    if isinstance(part, Latent):
        query = "" if part.q_rank == "none" else f", queries through {part.q_rank} ({norm(part.q_norm)})"
        return (
            f"{n.n_heads} heads of {part.nope_dim} + {part.rope_dim} rotated numbers, values of {part.value_dim}, "
            f"rebuilt from {part.kv_rank} a token ({norm(part.kv_norm)}){query}"
        )
    groups = "" if n.n_kv_heads == n.n_heads else f" on {n.n_kv_heads} of keys and values"
    values = "" if n.value_dim == n.head_dim else f", values of {n.value_dim}"
    return f"{n.n_heads} head{'s' if n.n_heads > 1 else ''} of {n.head_dim}{groups}{values}"


def _qk_norm(record: Any) -> str:
    if not isinstance(record, QKNorm):
        return ""
    over = "the whole width" if record.over == "width" else "each head"
    own = ", a gain for each" if record.gain == "per_head" else ""
    return f"{norm(record.norm)} over {over}{own}"


def _biases(part: Any, names: tuple[str, ...]) -> str:
    there = [name for name in names if getattr(part, f"{name}_bias")]
    return "no biases" if not there else "biases" if len(there) == len(names) else f"biases on {', '.join(there)}"


def _transform(record: Any) -> str:
    if not isinstance(record, Transform):
        return ""
    width = "" if record.width == "d_model" else f" to {record.width}"
    bias, act = "with a bias" if record.bias else "without a bias", ACTIVATIONS[record.activation]
    after = "" if isinstance(record.norm, NoNorm) else f", {norm(record.norm)}"
    return f"after a matrix{width} {bias}, {act}{after}"


def _pool(record: ClassHead | VectorHead) -> str:
    return {
        "first": "of the first token", "mean": "of the mean over tokens", "last": "of the last token",
        "eos": f"of the last token with id {record.eos_id}", "none": "one a token",
    }[record.pool]  # fmt: skip
