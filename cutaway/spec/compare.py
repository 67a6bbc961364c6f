"""Whether two specs describe the same computation, and where they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest
from typing import Any, TypeVar

from cutaway.spec.attention import Cross, Latent, MultiHead, sizes
from cutaway.spec.block import BRANCH_NAMES
from cutaway.spec.embedding import TokenEmbedding, table_width
from cutaway.spec.feedforward import MixtureOfExperts
from cutaway.spec.generation import Generation
from cutaway.spec.head import LanguageHead, Transform
from cutaway.spec.model import Decoder, Dropout, Encoder, ImageEncoder, Model, PrefixDecoder, Side, expand
from cutaway.spec.positions import LongRopeScaling, RoPE, YarnScaling, attention_factor, rotary_dim
from cutaway.spec.record import Record

M = TypeVar("M", bound=Record)


def settled(record: Model) -> Model:
    """The spec with every automatic choice and every repeat written out, and without what does not act on a forward.

    Two specs that differ only in how they say it, in their name, in defaults of generation or in what training alone
    uses become equal.
    """
    plain = record.replace(name="", generation=Generation(), dropout=Dropout())
    return mapped(plain, lambda value: _written_out(value, record.d_model))


def mapped(record: M, change: Callable[[Record], Record]) -> M:
    """The record with `change` applied to each record in it, the inner ones first; equal ones are changed once."""
    done: dict[Record, Record] = {}

    def walk(value: Record) -> Record:
        if value not in done:
            inner: dict[str, Any] = {}
            for name in type(value).model_fields:
                old = getattr(value, name)
                if isinstance(old, Record):
                    inner[name] = walk(old)
                elif isinstance(old, tuple) and any(isinstance(item, Record) for item in old):
                    inner[name] = tuple(walk(item) for item in old)
            done[value] = change(value.replace(**inner) if inner else value)
        return done[value]

    return walk(record)  # pyrefly: ignore


def differences(first: Model, second: Model, tolerance: float = 1e-9) -> list[tuple[str, Any, Any]]:
    """Each field in which two settled specs differ, with both values: `("layers 0–3 attn.q_bias", False, True)`.

    Numbers whose relative difference is at most `tolerance` count as equal.
    """
    found: dict[tuple[str, str], tuple[Any, Any]] = {}
    layers: dict[tuple[str, str], list[int]] = {}
    one, two = (settled(each).plain(full=True) for each in (first, second))
    for path, *values in _walk(one, two, "", tolerance):
        layer = re.match(r"(.*?layers)\.(\d+)", path)
        plain = path if layer is None else f"{layer[1]} *{path[layer.end() :]}"
        key = (plain.replace(".part.", "."), str(values))
        found.setdefault(key, (values[0], values[1]))
        layers.setdefault(key, []).extend([int(layer[2])] if layer else [])
    return [(_named(key[0], layers[key]), *values) for key, values in found.items()]


def _walk(one: Any, two: Any, path: str, tolerance: float) -> Iterator[tuple[str, Any, Any]]:
    match one, two:
        case dict(), dict() if one.get("kind") == two.get("kind"):
            one, two = _by_branch(one), _by_branch(two)
            for key in one | two:
                step = f"{path}.{key}".strip(".").replace(".stages.", ".stage ")
                yield from _walk(one.get(key, "absent"), two.get(key, "absent"), step, tolerance)
        case list(), list() if len(one) == len(two) or any(isinstance(each, dict) for each in one + two):
            for i, (left, right) in enumerate(zip_longest(one, two, fillvalue="absent")):
                yield from _walk(left, right, f"{path}.{i}", tolerance)
        case float(), float() if math.isclose(one, two, rel_tol=tolerance):
            pass
        case _ if one != two:
            yield path, _short(one), _short(two)


def _by_branch(data: dict[str, Any]) -> dict[str, Any]:
    """A stage with its branches under their names, attn, cross and ffn."""
    if "branches" not in data:
        return data
    rest = {key: value for key, value in data.items() if key != "branches"}
    return rest | {BRANCH_NAMES[branch["part"]["kind"]]: branch for branch in data["branches"]}


def _short(value: Any) -> Any:
    return value["kind"] if isinstance(value, dict) and "kind" in value else value


def _written_out(value: Record, d_model: int) -> Record:
    """The record with its words for numbers as numbers."""
    match value:
        case MultiHead() | Cross():
            n = sizes(value, d_model)
            value = value.replace(**n._asdict())
            if isinstance(value, MultiHead):
                return value.replace(positions=_turned(value.positions, n.head_dim))
            return value
        case Latent():
            scale = sizes(value, d_model).scale
            return value.replace(scale=scale, positions=_turned(value.positions, value.rope_dim))
        case YarnScaling():
            return value.replace(attention_factor=attention_factor(value), mscale=0.0, mscale_all_dim=0.0)
        case LongRopeScaling():
            return value.replace(attention_factor=attention_factor(value), factor=1.0)
        case TokenEmbedding():
            factor = d_model**0.5 if value.factor == "sqrt_d_model" else value.factor
            return value.replace(factor=factor, width=table_width(value, d_model))
        case LanguageHead(input_factor=str()):
            return value.replace(input_factor=d_model**-0.5)
        case Transform(width="d_model"):
            return value.replace(width=d_model)
        case MixtureOfExperts():
            return value.replace(load_balance=0.0)
        case Decoder() | PrefixDecoder() | Encoder() | ImageEncoder() | Side():
            return value.replace(layers=expand(value.layers))
    return value


def _turned(positions: Any, width: int) -> Any:
    return positions.replace(rotary_dim=rotary_dim(positions, width)) if isinstance(positions, RoPE) else positions


def _named(path: str, layers: list[int]) -> str:
    return path.replace("*.", "* ", 1).replace("*", spans(layers), 1) or "kind"


def spans(indices: list[int]) -> str:
    """0–4, 7; or 5, 11 … 29 where they are evenly spaced."""
    steps = {b - a for a, b in pairwise(indices)}
    if len(indices) > 2 and len(steps) == 1 and steps != {1}:
        return f"{indices[0]}, {indices[1]} … {indices[-1]}"
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
