"""Positions as functions: rotations, biases on the scores, buckets of distance, sinusoids."""

from __future__ import annotations

from cutaway.spec.positions import (
    ALiBi,
    DynamicScaling,
    FromIds,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    NoScaling,
    RoPE,
    Sinusoidal,
    T5Buckets,
    YarnScaling,
    rotary_dim,
)
from cutaway.spec.source.writing import File, function, number, shape

Scaling = NoScaling | LinearScaling | DynamicScaling | YarnScaling | Llama3Scaling | LongRopeScaling


def rotate(file: File, record: RoPE, head_dim: int) -> str:
    """A call of the function that turns q or k; `{}` takes the tensor."""
    turned = rotary_dim(record, head_dim)
    whole, pairs, halves = turned == head_dim, turned // 2, record.layout == "halves"
    before, after, factor = _scaled(record.scaling, turned)
    cos, sin = "angle.cos()", "angle.sin()"
    tables = [f"cos, sin = {cos}.to(x), {sin}.to(x)"]
    if factor:
        tables = [f"cos, sin = (factor * {cos}).to(x), (factor * {sin}).to(x)"]
    body = [] if whole else [f"x, rest = x[..., :{turned}], x[..., {turned}:]  # the rest of a head is not turned"]
    body += [
        "at = torch.arange(x.shape[-2], device=x.device)",
        f"pair = torch.arange({pairs}, dtype=torch.float64, device=x.device)",
        *before,
        f"frequency = base ** (-2 * pair / {turned})  # radians a position",
        *after,
        *factor,
        f"angle = at[:, None] * frequency{shape('T', pairs)}",
        *tables,
        "a, b = x.chunk(2, -1)" if halves else "a, b = x[..., 0::2], x[..., 1::2]",
        "a, b = a * cos - b * sin, b * cos + a * sin",
    ]
    joined = "torch.cat((a, b), -1)" if halves else "torch.stack((a, b), -1).flatten(-2)"
    body += [f"return {joined if whole else f'torch.cat(({joined}, rest), -1)'}"]
    which = f"(i, i + {pairs})" if halves else "(2i, 2i + 1)"
    doc = f"RoPE: pairs {which} of each head turn by position * base^(-2i/{turned})."
    mark = file.define(function("x, base", doc, body), "rotate", f"rotate_{record.scaling.kind}".removesuffix("_none"))
    return f"{mark}({{}}, {number(record.base)})"


def _scaled(scaling: Scaling, turned: int) -> tuple[list[str], list[str], list[str]]:
    """Lines before the frequencies, lines after them, and lines that make the factor of cos and sin."""
    match scaling:
        case LinearScaling():
            return [], [f"frequency = frequency / {number(scaling.factor)}"], []
        case DynamicScaling():
            original, factor = scaling.original_length, number(scaling.factor)
            return [
                "T = x.shape[-2]",
                f"if T > {original}:  # beyond what it was trained on the base grows",
                f"    grown = {factor} * T / {original} - ({factor} - 1)",
                f"    base = base * grown ** ({turned} / {max(turned - 2, 1)})",
            ], [], []  # fmt: skip
        case Llama3Scaling():
            low, high = number(scaling.low_freq_factor), number(scaling.high_freq_factor)
            return (
                [],
                [
                    f"turns = {scaling.original_length} * frequency / (2 * math.pi)  # within the original length",
                    f"kept = ((turns - {low}) / ({high} - {low})).clamp(0, 1)",
                    f"frequency = frequency * kept + frequency / {number(scaling.factor)} * (1 - kept)",
                ],
                [],
            )
        case YarnScaling():
            return [], _yarn(scaling, turned), _yarn_factor(scaling)
        case LongRopeScaling():
            return [], _longrope(scaling), _longrope_factor(scaling)
    return [], [], []


def _yarn(scaling: YarnScaling, turned: int) -> list[str]:
    low, high = (
        f"{turned} * math.log({scaling.original_length} / (2 * math.pi * {number(beta)})) / (2 * math.log(base))"
        for beta in (scaling.beta_fast, scaling.beta_slow)
    )
    ends = ("math.floor(low)", "math.ceil(high)") if scaling.truncate else ("low", "high")
    return [
        f"# the pairs that turn {number(scaling.beta_fast)} and {number(scaling.beta_slow)} times",
        f"low = {low}",
        f"high = {high}",
        f"low, high = max({ends[0]}, 0), min({ends[1]}, {turned - 1})",
        "ramp = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)  # 0: kept, 1: slowed",
        f"frequency = frequency * (1 - ramp) + frequency / {number(scaling.factor)} * ramp",
    ]


def _yarn_factor(scaling: YarnScaling) -> list[str]:
    if scaling.attention_factor != "auto":
        return [f"factor = {number(scaling.attention_factor)}"]
    if scaling.factor <= 1:
        return []
    grown = f"math.log({number(scaling.factor)}) + 1"
    if scaling.mscale and scaling.mscale_all_dim:
        above, below = number(scaling.mscale), number(scaling.mscale_all_dim)
        return [f"factor = (0.1 * {above} * {grown}) / (0.1 * {below} * {grown})"]
    return [f"factor = 0.1 * {grown}"]


def _longrope(scaling: LongRopeScaling) -> list[str]:
    def listed(name: str, factors: tuple[float, ...]) -> list[str]:
        rows = [", ".join(map(number, factors[i : i + 8])) for i in range(0, len(factors), 8)]
        if len(rows) == 1:
            return [f"{name} = [{rows[0]}]"]
        return [f"{name} = [", *(f"    {row}," for row in rows), "]"]

    return [
        *listed("short", scaling.short_factors),
        *listed("long", scaling.long_factors),
        f"divisors = short if x.shape[-2] <= {scaling.original_length} else long",
        "frequency = frequency / torch.tensor(divisors, dtype=torch.float64, device=x.device)",
    ]


def _longrope_factor(scaling: LongRopeScaling) -> list[str]:
    if scaling.attention_factor != "auto":
        return [f"factor = {number(scaling.attention_factor)}"]
    if scaling.factor <= 1:
        return []
    return [f"factor = math.sqrt(1 + math.log({number(scaling.factor)}) / math.log({scaling.original_length}))"]


def alibi(file: File, record: ALiBi, n_heads: int) -> str:
    """A call of the function whose result is added to the scores."""
    power = 1 << (n_heads - 1).bit_length()
    body = [
        "at = torch.arange(scores.shape[-1], device=scores.device)",
        f"head = torch.arange(1, {power + 1}, dtype=torch.float64, device=scores.device)",
        f"slopes = 2.0 ** (-{number(record.max_bias)} * head / {power})",
    ]
    if power != n_heads:
        body += [f"slopes = torch.cat((slopes[1::2], slopes[::2]))[:{n_heads}]"]
    times = "" if record.factor == 1.0 else f"{number(record.factor)} * "
    if record.bfloat16:
        body += [
            "slopes = slopes.float().bfloat16()  # each step rounded, as it was trained",
            f"bias = {times}(slopes[:, None, None] * at.bfloat16()).double(){shape(n_heads, 1, 'T')}",
        ]
        doc = "ALiBi: slope * key position; the softmax forgets what the query's would add."
    else:
        body += [
            f"distance = (at - at[:, None]).abs(){shape('T', 'T')}",
            f"bias = {'-' if not times else f'-{times}'}slopes[:, None, None] * distance{shape(n_heads, 'T', 'T')}",
        ]
        doc = "ALiBi: -slope * distance, a slope a head."
    return f"{file.define(function('scores', doc, [*body, 'return bias.to(scores)']), 'alibi')}(scores)"


def buckets(file: File, record: T5Buckets) -> str:
    """A call of the function that gives the bucket of each query and key, of shape T T."""
    n = record.n_buckets // 2 if record.bidirectional else record.n_buckets
    exact = n // 2
    far = "distance.abs()" if record.bidirectional else "(-distance).clamp(min=0)"
    side = f"bucket = {n} * (distance > 0)  # keys ahead have the second half"
    body = [
        "at = torch.arange(x.shape[1], device=x.device)",
        f"distance = at - at[:, None]  # key - query: {'T T'}",
        f"far = {far}",
        f"ratio = (far.clamp(min=1).double() / {exact}).log() / math.log({record.max_distance} / {exact})",
        f"coarse = {exact} + (ratio * {n - exact} + 1e-9).long()",
        f"near = torch.where(far < {exact}, far, coarse.clamp(max={n - 1}))",
        *([side, "return bucket + near"] if record.bidirectional else ["return near"]),
    ]
    name = "buckets_both_ways" if record.bidirectional else "buckets_back"
    doc = f"Exact up to {exact - 1}, then logarithmic up to {record.max_distance}."
    return f"{file.define(function('x', doc, body), 'buckets', name)}(x)"


def sinusoids(file: File, record: Sinusoidal, width: int) -> str:
    """A call of the function that gives a row for each position; `{}` takes the positions."""
    closed = record.frequencies == "closed"
    pairs = width // 2 if closed else (width + 1) // 2
    exponent = f"pair / {max(pairs - 1, 1)}" if closed else f"2 * pair / {width}"
    body = [
        f"pair = torch.arange({pairs}, dtype=torch.float64, device=at.device)",
        f"angle = at[..., None] * {number(record.base)} ** -({exponent}){shape('T', pairs)}",
    ]
    if record.layout == "interleaved":
        body += ["table = torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)"]
    else:
        body += ["table = torch.cat((angle.sin(), angle.cos()), -1)"]
    cut = f"[..., :{width}]" if 2 * pairs > width else ""  # an odd width lacks the last cosine
    if closed and isinstance(record.counted, FromIds):
        body += [f"table = table.masked_fill((at == {record.counted.pad_id})[..., None], 0.0)  # padding"]
    doc = f"sin and cos of position * {number(record.base)}^(-{exponent.replace('pair', 'i')})."
    return f"{file.define(function('at', doc, [*body, f'return table{cut}']), 'sinusoids')}({{}})"
