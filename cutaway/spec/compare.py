"""Whether two specs describe the same computation, and where they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, TypeVar

from cutaway.spec.attention import Cross, Latent, MultiHead, sizes
from cutaway.spec.block import BRANCH_NAMES
from cutaway.spec.embedding import TokenEmbedding
from cutaway.spec.feedforward import MixtureOfExperts
from cutaway.spec.generation import Generation
from cutaway.spec.head import LanguageHead, Transform
from cutaway.spec.model import Dropout, Model, expand
from cutaway.spec.positions import RoPE
from cutaway.spec.record import Record

R = TypeVar("R", bound=Record)


def settled(record: Model) -> Model:
    """The spec with every automatic choice and every repeat written out, and without what does not act on a forward.

    Two specs that differ only in how they say it, in their name, in defaults of generation or in what training alone
    uses become equal.
    """
    done: dict[Record, Record] = {}
    plain = record.replace(name="", generation=Generation(), dropout=Dropout())
    return _settle(plain, record.d_model, done)


def differences(first: Model, second: Model, tolerance: float = 1e-9) -> list[tuple[str, Any, Any]]:
    """Each field in which two settled specs differ, with both values: `("layers 0-3 attn.q_bias", False, True)`.

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


def _settle(value: R, d_model: int, done: dict[Record, Record]) -> R:
    if value in done:
        return done[value]  # pyrefly: ignore
    changes: dict[str, Any] = {}
    for name in type(value).model_fields:
        old = getattr(value, name)
        if isinstance(old, Record):
            changes[name] = _settle(old, d_model, done)
        elif isinstance(old, tuple) and old and isinstance(old[0], Record):
            items = expand(old) if name == "layers" else old
            changes[name] = tuple(_settle(item, d_model, done) for item in items)
    done[value] = out = value.replace(**(changes | _choices(value, changes, d_model)))
    return out


def _choices(value: Record, changes: dict[str, Any], d_model: int) -> dict[str, Any]:
    """The fields of a record that are words for a number, as numbers."""
    match value:
        case MultiHead() | Cross():
            n = sizes(value, d_model)
            out: dict[str, Any] = dict(
                n_heads=n.n_heads, n_kv_heads=n.n_kv_heads, head_dim=n.head_dim, value_dim=n.value_dim, scale=n.scale
            )
            if isinstance(value, MultiHead) and isinstance(value.positions, RoPE):
                turned = value.positions.rotary_dim
                out["positions"] = changes["positions"].replace(rotary_dim=n.head_dim if turned == "head" else turned)
            return out
        case Latent():
            out = {"scale": sizes(value, d_model).scale}
            if isinstance(value.positions, RoPE):
                out["positions"] = changes["positions"].replace(rotary_dim=value.rope_dim)
            return out
        case TokenEmbedding():
            factor = d_model**0.5 if value.factor == "sqrt_d_model" else value.factor
            return {"factor": factor, "width": d_model if value.width == "d_model" else value.width}
        case LanguageHead():
            return {"input_factor": d_model**-0.5 if isinstance(value.input_factor, str) else value.input_factor}
        case Transform():
            return {"width": d_model if value.width == "d_model" else value.width}
        case MixtureOfExperts():
            return {"load_balance": 0.0}
    return {}


def _named(path: str, layers: list[int]) -> str:
    spans: list[str] = []
    for layer in layers:
        if spans and int(spans[-1].split("-")[-1]) == layer - 1:
            spans[-1] = f"{spans[-1].split('-')[0]}-{layer}"
        else:
            spans.append(str(layer))
    return path.replace("*.", "* ", 1).replace("*", ", ".join(spans), 1) or "kind"
