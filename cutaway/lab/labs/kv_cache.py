"""Lab `kv-cache`: what a step computes with and without a cache, and what a real model's cache weighs.

State: `tokens` 1 to 12 of the small run; `cached` whether keys and values are kept; `step` the step that is looked at
(below tokens); `model` smollm2, llama-2-7b or llama-3-8b; `kv_heads` 0 (as the model has) or a divisor of its heads;
`context` 1 to 1000000 tokens; `batch` 1 to 1024; `weight_bytes` and `cache_bytes` a number (0.5 to 4); `memory` and
`bandwidth` in GB and GB/s; `compute` in GFLOP/s.

Result: `work` for each step `projected` (vectors made: q, k and v of each token that is run) and `dots` (query-key
products, all tokens), with `total_projected`, `total_dots`, and the same totals `without` and `with` a cache; `fresh`
[tokens, tokens] for the step: which products are computed now (true), `known` [tokens] which keys come from the cache;
`difference` between the outputs of both ways on random weights with RoPE (rounding); `rotated` whether the keys in
the cache are those of the whole run; `model`: `layers`, `heads`, `kv_heads`, `head_dim`, `d_model`, `parameters`,
`legal_kv_heads`; `cost`: `per_token` bytes of cache a token, `cache` bytes of the whole batch at this context,
`weights` bytes, `fits`, `longest` context that fits (0: not even the weights), `seconds_prefill`, `tokens_per_second`
of the batch, `limit` bandwidth or compute, `flops_per_token`; `numbers` per_token, cache, weights, speed, longest,
dots_with, dots_without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cutaway.lab.labs import show
from cutaway.lab.labs.say import Say
from cutaway.lab.labs.state import State
from cutaway.reference.attention import attend
from cutaway.reference.functions import Array
from cutaway.reference.masks import causal
from cutaway.reference.positions import rope_frequencies, rotate

DEFAULT: dict[str, Any] = {
    "tokens": 8, "cached": True, "step": 5, "model": "smollm2", "kv_heads": 0, "context": 2048, "batch": 1,
    "weight_bytes": 2.0, "cache_bytes": 2.0, "memory": 8.0, "bandwidth": 40.0, "compute": 200.0,
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """The sizes of a decoder-only model with a gated feed-forward network, RMSNorms and no biases."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    d_model: int
    d_ff: int
    vocab_size: int
    tied: bool

    @property
    def parameters(self) -> int:
        attention = 2 * self.d_model * (self.heads + self.kv_heads) * self.head_dim
        block = attention + 3 * self.d_model * self.d_ff + 2 * self.d_model
        tables = self.vocab_size * self.d_model * (1 if self.tied else 2)
        return tables + self.layers * block + self.d_model

    def cache_numbers(self) -> int:
        """Numbers in the cache a token: K and V of every layer and key head."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def flops(self, context: int) -> int:
        """Of one new token: two for each weight it meets, and four a head number and key for the attention."""
        met = self.parameters - (0 if self.tied else self.vocab_size * self.d_model)
        return 2 * met + 4 * self.layers * self.heads * self.head_dim * context


MODELS = {
    "smollm2": Model(30, 9, 3, 64, 576, 1536, 49152, True),
    "llama-2-7b": Model(32, 32, 32, 128, 4096, 11008, 32000, False),
    "llama-3-8b": Model(32, 32, 8, 128, 4096, 14336, 128256, False),
}


def run(state: dict, say: Say) -> dict:
    """The small run step by step, then the arithmetic of the big model."""
    values = State("kv-cache", DEFAULT, state)
    tokens = values.whole("tokens", 1, 12)
    step, cached = values.whole("step", 0, tokens - 1), values.flag("cached")
    work = {"without": _work(tokens, False), "with": _work(tokens, True)}
    model, cost = _model(values), _cost(values)
    full, stepwise, same_keys = _both_ways(tokens)
    result = {
        "work": work["with" if cached else "without"] | {name: _totals(each) for name, each in work.items()},
        "step": step, "cached": cached, "fresh": _fresh(tokens, step, cached),
        "known": np.arange(tokens) < step * cached,
        "difference": float(np.abs(full - stepwise).max()), "rotated": same_keys,
        "model": _described(model, MODELS[values.values["model"]].heads), "cost": cost,
    }  # fmt: skip
    numbers = {
        "per_token": _bytes(cost["per_token"]),
        "cache": _bytes(cost["cache"]),
        "weights": _bytes(cost["weights"]),
        "speed": f"{cost['tokens_per_second']:.3g} tokens/s",
        "longest": f"{cost['longest']:,} tokens",
        "dots_with": str(work["with"]["total_dots"]),
        "dots_without": str(work["without"]["total_dots"]),
    }
    return show.plain(result | {"numbers": numbers, "text": say("seen", tokens=tokens, **numbers)})


def _work(tokens: int, cached: bool) -> dict[str, Any]:
    """A step runs the new token alone, or all so far; each token it runs looks at itself and those before."""
    steps = range(1, tokens + 1)
    projected = [3 if cached else 3 * n for n in steps]
    dots = [n if cached else n * (n + 1) // 2 for n in steps]
    return {"projected": projected, "dots": dots, "total_projected": sum(projected), "total_dots": sum(dots)}


def _totals(work: dict[str, Any]) -> dict[str, int]:
    return {key: work[key] for key in ("total_projected", "total_dots")}


def _fresh(tokens: int, step: int, cached: bool) -> np.ndarray:
    places = np.arange(tokens)
    run_now = places == step if cached else places <= step
    return run_now[:, None] & causal(places[:, None], places)


def _both_ways(tokens: int, width: int = 8) -> tuple[Array, Array, bool]:
    """One head with RoPE on random weights: all tokens at once, and one after the other with a growing cache."""
    rng = np.random.default_rng(0)
    x, (wq, wk, wv) = rng.normal(size=(tokens, width)), rng.normal(size=(3, width, width)) / np.sqrt(width)
    angles = np.arange(tokens)[:, None] * rope_frequencies(width)
    q, k, v = rotate(x @ wq, angles), rotate(x @ wk, angles), x @ wv
    places = np.arange(tokens)
    full = attend(q, k, v, causal(places[:, None], places))[0]
    keys, kept, outputs = np.zeros((0, width)), np.zeros((0, width)), []
    for t in range(tokens):
        keys = np.concatenate([keys, rotate(x[[t]] @ wk, angles[[t]])])  # turned once, before it is stored
        kept = np.concatenate([kept, x[[t]] @ wv])
        outputs.append(attend(rotate(x[[t]] @ wq, angles[[t]]), keys, kept)[0])
    return full, np.concatenate(outputs), bool(np.allclose(keys, k, rtol=0, atol=1e-12))


def _model(values: State) -> Model:
    model = MODELS[values.choice("model", tuple(MODELS))]
    kv_heads = values.whole("kv_heads", 0, model.heads)
    if kv_heads and model.heads % kv_heads:
        raise values.refuse("kv_heads", f"0 or one of {', '.join(map(str, _divisors(model.heads)))}")
    return replace(model, kv_heads=kv_heads) if kv_heads else model


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _described(model: Model, heads: int) -> dict[str, Any]:
    return {
        "layers": model.layers, "heads": model.heads, "kv_heads": model.kv_heads, "head_dim": model.head_dim,
        "d_model": model.d_model, "parameters": model.parameters, "legal_kv_heads": _divisors(heads),
    }  # fmt: skip


def _cost(values: State) -> dict[str, Any]:
    model, context, batch = _model(values), values.whole("context", 1, 1_000_000), values.whole("batch", 1, 1024)
    memory, bandwidth = values.number("memory", 0.1, 10_000) * 1e9, values.number("bandwidth", 1, 100_000) * 1e9
    compute = values.number("compute", 1, 10_000_000) * 1e9
    per_token = model.cache_numbers() * values.number("cache_bytes", 0.5, 4)
    weights, cache = model.parameters * values.number("weight_bytes", 0.5, 4), per_token * context * batch
    reading, working = (weights + cache) / bandwidth, batch * model.flops(context) / compute
    prefill = batch * context * model.flops(context // 2) / compute
    return {
        "per_token": per_token, "cache": cache, "weights": weights, "fits": weights + cache <= memory,
        "longest": max(0, int((memory - weights) / (per_token * batch))), "seconds_prefill": prefill,
        "tokens_per_second": batch / max(reading, working), "limit": "bandwidth" if reading >= working else "compute",
        "flops_per_token": model.flops(context),
    }  # fmt: skip


def _bytes(n: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:g} B"
