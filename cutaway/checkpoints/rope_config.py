"""Rotary settings of config.json, in both of its layouts, to and from our record."""

from __future__ import annotations

from typing import Any, Literal

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.errors import CheckpointError
from cutaway.spec.positions import RopeScaling

Layout = Literal["halves", "interleaved"]


def read_rope(
    config: Config, head_dim: int, base: float = 10000.0, layout: Layout = "halves", layer_type: str = "",
    share: float | None = None,
) -> spec.RoPE:  # fmt: skip
    """RoPE from `rope_parameters` (v5: a table, or one a layer type) or `rope_theta` and `rope_scaling` (v4).

    `base` and `share`, the rotated part of a head, are the architecture's own defaults, taken and noted where the file
    has none; `share` None: it turns whole heads, and a file that says otherwise is refused.
    """
    table = _table(config, layer_type)
    theta, rotary_dim = _either(table, config, "rope_theta", base), head_dim
    if share is None:
        table.expect("partial_rotary_factor", 1.0, None)
        config.expect("partial_rotary_factor", 1.0, None)
    else:
        rotary_dim = int(head_dim * _either(table, config, "partial_rotary_factor", share))
    turned = "head" if rotary_dim == head_dim else rotary_dim
    record = spec.RoPE(base=theta, rotary_dim=turned, layout=layout, scaling=_scaling(table, config))
    table.finish()
    return record


def read_ropes(
    config: Config, head_dim: int, local_key: str, bases: tuple[float, float]
) -> tuple[spec.RoPE, spec.RoPE]:
    """The rotations of layers with full and with sliding attention; the older layout scales none of the sliding ones.

    There `local_key` has their base; `bases` are the architecture's own defaults.
    """
    if config.has("rope_parameters"):
        full, local = (
            read_rope(config, head_dim, base, layer_type=kind)
            for kind, base in zip(("full_attention", "sliding_attention"), bases, strict=True)
        )
        return full, local
    return read_rope(config, head_dim, bases[0]), spec.RoPE(base=config.number(local_key, bases[1]), layout="halves")


def _table(config: Config, layer_type: str) -> Config:
    where = f"{config.where}: rope_parameters"
    table = config.take("rope_parameters|rope_scaling", {})
    config.expect("rope_scaling", None, table)
    if layer_type and isinstance(table, dict):
        where, table = f"{where}.{layer_type}", table.get(layer_type)
    if not isinstance(table, dict):
        raise CheckpointError(f"{where} is {table!r}, expected a table")
    return Config(table, where)


def _either(table: Config, config: Config, key: str, default: float) -> float:
    """A number of the table, or beside it as in older files; if it is in both they must agree."""
    if not table.has(key):
        return config.number(key, default)
    value = table.number(key)
    config.expect(key, value, None)
    return value


def _scaling(table: Config, config: Config) -> RopeScaling:
    """The scaling that a table describes."""
    kind = table.take("rope_type|type", "default")
    table.expect("type", kind)
    longest = config.integer("max_position_embeddings")
    length = table.integer("original_max_position_embeddings", longest)
    if config.has("original_max_position_embeddings"):  # beside the table it wins
        length = config.integer("original_max_position_embeddings")
    match kind:
        case "default":
            table.take("factor", None)
            return spec.NoScaling()
        case "linear":
            return spec.LinearScaling(factor=table.number("factor"))
        case "dynamic":
            return spec.DynamicScaling(factor=table.number("factor"), original_length=longest)
        case "llama3":
            return spec.Llama3Scaling(
                factor=table.number("factor"),
                low_freq_factor=table.number("low_freq_factor"),
                high_freq_factor=table.number("high_freq_factor"),
                original_length=length,
            )
        case "yarn":
            factor = table.nullable("factor")
            return spec.YarnScaling(
                factor=longest / length if factor is None else table.number("factor"),
                original_length=length,
                attention_factor=_attention(table),
                beta_fast=table.number("beta_fast", 32.0),
                beta_slow=table.number("beta_slow", 1.0),
                truncate=table.flag("truncate", True),
                mscale=table.number("mscale", 0.0),
                mscale_all_dim=table.number("mscale_all_dim", 0.0),
            )
        case "longrope" | "su":
            return spec.LongRopeScaling(
                short_factors=_numbers(table, "short_factor"),
                long_factors=_numbers(table, "long_factor"),
                original_length=length,
                factor=table.number("factor", longest / length),
                attention_factor=_attention(table),
            )
    raise CheckpointError(
        f"{table.where}: rope type {kind!r} is not known; known are default, dynamic, linear, llama3, longrope, yarn"
    )


def _attention(table: Config) -> float | Literal["auto"]:
    given = table.nullable("attention_factor", None)
    return "auto" if given is None else table.number("attention_factor")


def _numbers(table: Config, key: str) -> tuple[float, ...]:
    values = table.take(key)
    if not isinstance(values, list) or not all(isinstance(x, (int, float)) for x in values):
        raise CheckpointError(f"{table.where}: {key} is {values!r}, expected a list of numbers")
    return tuple(float(x) for x in values)


def write_rope(record: spec.RoPE, head_dim: int) -> dict[str, Any]:
    """The v5 table `rope_parameters` of a record (a partial one carries `partial_rotary_factor`)."""
    out: dict[str, Any] = {"rope_theta": record.base}
    if record.rotary_dim != "head":
        out["partial_rotary_factor"] = record.rotary_dim / head_dim
    scaling = record.scaling
    match scaling:
        case spec.NoScaling():
            return out | {"rope_type": "default"}
        case spec.LinearScaling():
            return out | {"rope_type": "linear", "factor": scaling.factor}
        case spec.DynamicScaling():
            return out | {"rope_type": "dynamic", "factor": scaling.factor}
        case spec.LongRopeScaling():
            out |= {
                "rope_type": "longrope",
                "factor": scaling.factor,
                "short_factor": list(scaling.short_factors),
                "long_factor": list(scaling.long_factors),
                "original_max_position_embeddings": scaling.original_length,
            }
        case spec.Llama3Scaling():
            out |= {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_length,
            }
        case spec.YarnScaling():
            out |= {
                "rope_type": "yarn",
                "factor": scaling.factor,
                "original_max_position_embeddings": scaling.original_length,
                "beta_fast": scaling.beta_fast,
                "beta_slow": scaling.beta_slow,
                "truncate": scaling.truncate,
            }
            out |= {key: getattr(scaling, key) for key in ("mscale", "mscale_all_dim") if getattr(scaling, key)}
    if isinstance(scaling, (spec.YarnScaling, spec.LongRopeScaling)) and scaling.attention_factor != "auto":
        out["attention_factor"] = scaling.attention_factor
    return out
