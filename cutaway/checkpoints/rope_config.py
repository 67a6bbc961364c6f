"""Rotary settings of config.json, in both of its layouts, to and from our record."""

from __future__ import annotations

from typing import Any, Literal

from cutaway import spec
from cutaway.checkpoints.config import Config
from cutaway.errors import CheckpointError

Layout = Literal["halves", "interleaved"]


def read_rope(
    config: Config, head_dim: int, base: float = 10000.0, layout: Layout = "halves", layer_type: str = ""
) -> spec.RoPE:
    """RoPE from `rope_parameters` (v5: a table, or one a layer type) or `rope_theta` and `rope_scaling` (v4).

    `base` is the architecture's own default, taken and noted where the file has none.
    """
    table = dict(config.take("rope_parameters|rope_scaling", {}))
    if layer_type in table:
        table = dict(table[layer_type])
    theta = table.pop("rope_theta", None)
    theta = config.number("rope_theta", base) if theta is None else theta
    share = table.pop("partial_rotary_factor", None)
    if share is None:
        share = config.take("partial_rotary_factor", 1.0) if config.has("partial_rotary_factor") else 1.0
    rotary_dim = int(head_dim * share)
    scaling = read_scaling(table, config)
    return spec.RoPE(
        base=float(theta), rotary_dim="head" if rotary_dim == head_dim else rotary_dim, layout=layout, scaling=scaling
    )


def read_scaling(table: dict[str, Any], config: Config) -> Any:
    """The scaling of a rope table whose base has been taken out."""
    kinds = [table.pop(key) for key in ("rope_type", "type") if key in table]
    kind = kinds[0] if kinds else "default"
    length = _original_length(table, config)
    try:
        record = _scaling(kind, table, length, config)
    except KeyError as missing:
        raise CheckpointError(f"{config.where}: rope type {kind!r} without {missing.args[0]!r}") from None
    if table:
        raise CheckpointError(f"{config.where}: rope settings {sorted(table)} of type {kind!r} not understood")
    return record


def _original_length(table: dict[str, Any], config: Config) -> int:
    own = table.pop("original_max_position_embeddings", None)
    if own is None and config.has("original_max_position_embeddings"):
        own = config.integer("original_max_position_embeddings")
    return int(own) if own is not None else config.integer("max_position_embeddings")


def _scaling(kind: str, table: dict[str, Any], length: int, config: Config) -> Any:
    def number(key: str, default: float | None = None) -> float:
        value = table.pop(key, None)
        if value is None:
            if default is None:
                raise KeyError(key)
            return default
        return float(value)

    match kind:
        case "default":
            table.pop("factor", None)
            return spec.NoScaling()
        case "linear":
            return spec.LinearScaling(factor=number("factor"))
        case "dynamic":
            return spec.DynamicScaling(
                factor=number("factor"), original_length=config.integer("max_position_embeddings")
            )
        case "llama3":
            return spec.Llama3Scaling(
                factor=number("factor"),
                low_freq_factor=number("low_freq_factor"),
                high_freq_factor=number("high_freq_factor"),
                original_length=length,
            )
        case "yarn":
            attention = table.pop("attention_factor", None)
            return spec.YarnScaling(
                factor=number("factor"),
                original_length=length,
                attention_factor="auto" if attention is None else float(attention),
                beta_fast=number("beta_fast", 32.0),
                beta_slow=number("beta_slow", 1.0),
                truncate=bool(table.pop("truncate", True)),
                mscale=number("mscale", 0.0),
                mscale_all_dim=number("mscale_all_dim", 0.0),
            )
        case "longrope" | "su":
            attention = table.pop("attention_factor", None)
            factor = table.pop("factor", None)
            grown = config.integer("max_position_embeddings") / length
            return spec.LongRopeScaling(
                short_factors=tuple(float(x) for x in table.pop("short_factor")),
                long_factors=tuple(float(x) for x in table.pop("long_factor")),
                original_length=length,
                factor=float(factor) if factor is not None else grown,
                attention_factor="auto" if attention is None else float(attention),
            )
    raise CheckpointError(
        f"{config.where}: rope type {kind!r} is not known; known are default, dynamic, linear, llama3, longrope, yarn"
    )


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
