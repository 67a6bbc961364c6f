"""Rules across the fields of one part: attention with its positions, and the feed-forward networks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cutaway.spec.attention import Cross, Latent, MultiHead, QKNorm, sizes
from cutaway.spec.feedforward import Dense, Gated, MixtureOfExperts, SharedExpert
from cutaway.spec.positions import Llama3Scaling, LongRopeScaling, RoPE, T5Buckets, YarnScaling, rotary_dim

MOST_LISTED = 1 << 12
"""Legal values up to this number are listed one by one."""


class Problem(NamedTuple):
    """Why a spec cannot be built: where, what, and the values that would be legal there.

    A legal value is the value itself, or words such as 'at least 8' where there are too many to list.
    """

    path: str
    message: str
    legal: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.path}: {self.message}; legal: {listed(self.legal)}"


def listed(values: Iterable[Any]) -> str:
    """Values in a row, the middle of a long one left out."""
    shown = [value if isinstance(value, str) else repr(value).lower() for value in values]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:8], "...", shown[-1]])


def part_problems(part: Any, d_model: int, at: str) -> Iterator[Problem]:
    """The problems of one part that need no other part to be seen; `at` is its path."""
    match part:
        case MultiHead() | Cross():
            yield from _heads(part, d_model, at)
        case Latent():
            yield from _positions(part.positions, part.rope_dim, "rope_dim", f"{at}.positions")
        case Gated():
            yield from _gated(part, at)
        case MixtureOfExperts():
            yield from _mixture(part, d_model, at)


def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


def legal_divisors(n: int) -> tuple[Any, ...]:
    """The divisors, in words where no list of them would be found in time."""
    return divisors(n) if n < 1 << 32 else (f"a divisor of {n}",)


def _heads(part: MultiHead | Cross, d_model: int, at: str) -> Iterator[Problem]:
    if part.n_kv_heads != "n_heads" and part.n_heads % part.n_kv_heads:
        message = f"{part.n_heads} query heads cannot share {part.n_kv_heads} key heads equally"
        yield Problem(f"{at}.n_kv_heads", message, legal_divisors(part.n_heads))
    if isinstance(part.qk_norm, QKNorm) and part.qk_norm.over == "width" and part.qk_norm.gain == "per_head":
        message = "a norm over the whole width has one gain for that width"
        yield Problem(f"{at}.qk_norm.gain", message, ("shared",))
    if part.head_dim == "auto" and d_model % part.n_heads:
        message = f"{part.n_heads} heads cannot share d_model {d_model} equally; head_dim is auto"
        yield Problem(f"{at}.n_heads", message, legal_divisors(d_model))
    elif isinstance(part, MultiHead):
        yield from _positions(part.positions, sizes(part, d_model).head_dim, "head_dim", f"{at}.positions")
        yield from _borrowed(part, at)


def _borrowed(part: MultiHead, at: str) -> Iterator[Problem]:
    for name in ("k_bias", "v_bias"):
        if part.share_kv != "none" and getattr(part, name):
            yield Problem(f"{at}.{name}", "a layer that reads another's keys and values projects none", (False,))


def _positions(record: Any, width: int, named: str, at: str) -> Iterator[Problem]:
    if isinstance(record, RoPE):
        yield from _rope(record, width, named, at)
    if isinstance(record, T5Buckets):
        yield from _buckets(record, at)


def _rope(rope: RoPE, width: int, named: str, at: str) -> Iterator[Problem]:
    turned = rotary_dim(rope, width)
    if turned % 2 or turned > width:
        message = f"RoPE turns pairs of the {width} numbers of {named}; rotary_dim {turned} is "
        message += "odd" if turned % 2 else "more than that"
        if width < 2:
            yield Problem(f"{at}.kind", message, ("none", "alibi", "t5"))
        else:
            few = width <= MOST_LISTED
            legal = tuple(range(2, width + 1, 2)) if few else (f"even, at most {width}",)
            yield Problem(f"{at}.rotary_dim", message, legal)
        return
    scaling = rope.scaling
    match scaling:
        case YarnScaling() if scaling.beta_fast <= scaling.beta_slow:
            message = (
                f"the ramp runs from beta_fast down to beta_slow {scaling.beta_slow}, not from {scaling.beta_fast}"
            )
            yield Problem(f"{at}.scaling.beta_fast", message, (f"above {scaling.beta_slow}",))
        case YarnScaling() if rope.base <= 1:
            yield Problem(f"{at}.base", f"YaRN divides by ln(base), and base is {rope.base}", ("above 1.0",))
        case Llama3Scaling() if scaling.low_freq_factor >= scaling.high_freq_factor:
            message = f"the blend runs from low_freq_factor up to high_freq_factor {scaling.high_freq_factor}"
            yield Problem(f"{at}.scaling.high_freq_factor", message, (f"above {scaling.low_freq_factor}",))
        case LongRopeScaling():
            yield from _longrope(scaling, turned // 2, f"{at}.scaling")


def _longrope(scaling: LongRopeScaling, pairs: int, at: str) -> Iterator[Problem]:
    for name in ("short_factors", "long_factors"):
        given = len(getattr(scaling, name))
        if given != pairs:
            yield Problem(
                f"{at}.{name}", f"{given} numbers for {pairs} rotated pairs", (f"{pairs} numbers, one a pair",)
            )
    if scaling.attention_factor == "auto" and scaling.factor > 1 and scaling.original_length < 2:
        message = "attention_factor auto divides by ln(original_length)"
        yield Problem(f"{at}.original_length", message, ("at least 2",))


def _buckets(record: T5Buckets, at: str) -> Iterator[Problem]:
    one_side = record.n_buckets // 2 if record.bidirectional else record.n_buckets
    single = one_side // 2
    if single < 1:
        message = f"{record.n_buckets} buckets for both directions leave none for single distances"
        yield Problem(f"{at}.n_buckets", message, ("at least 4",))
    elif record.max_distance <= single:
        message = f"{single} single distances already reach beyond max_distance {record.max_distance}"
        yield Problem(f"{at}.max_distance", message, (f"at least {single + 1}",))


def _gated(part: Gated, at: str) -> Iterator[Problem]:
    if part.alpha != 1.0 and part.activation != "silu":
        message = f"alpha {part.alpha} is a factor inside SiLU; the activation is {part.activation}"
        yield Problem(f"{at}.alpha", message, (1.0,))


def _mixture(part: MixtureOfExperts, d_model: int, at: str) -> Iterator[Problem]:
    router, n = part.router, part.n_experts
    if part.n_active > n:
        yield Problem(f"{at}.n_active", f"{part.n_active} of {n} experts cannot be active", tuple(range(1, n + 1)))
    if n % router.n_groups:
        message = f"{n} experts cannot form {router.n_groups} equal groups"
        yield Problem(f"{at}.router.n_groups", message, legal_divisors(n))
    else:
        yield from _groups(part, n // router.n_groups, f"{at}.router")
    experts: list[tuple[str, Dense | Gated]] = [("expert", part.expert)]
    if isinstance(part.shared, SharedExpert):
        experts.append(("shared.expert", part.shared.expert))
    for name, expert in experts:
        yield from part_problems(expert, d_model, f"{at}.{name}")


def _groups(part: MixtureOfExperts, size: int, at: str) -> Iterator[Problem]:
    router = part.router
    if router.n_active_groups > router.n_groups:
        message = f"{router.n_active_groups} of {router.n_groups} groups cannot be active"
        yield Problem(f"{at}.n_active_groups", message, tuple(range(1, router.n_groups + 1)))
    elif part.n_active <= part.n_experts and part.n_active > router.n_active_groups * size:
        message = f"{router.n_active_groups} groups of {size} experts do not hold the {part.n_active} active ones"
        least = -(-part.n_active // size)
        yield Problem(f"{at}.n_active_groups", message, tuple(range(least, router.n_groups + 1)))
    if router.group_score == "top2" and size < 2:
        yield Problem(f"{at}.group_score", f"top2 needs two experts a group; a group has {size}", ("max",))
