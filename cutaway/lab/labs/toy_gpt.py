"""A character-level GPT small enough to train while one waits, its gradients written by hand.

Pre-norm blocks (RMSNorm, causal attention, ReLU network with 4 times the width), learned positions, a head of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cutaway.reference.attention import attend, join_heads, split_heads
from cutaway.reference.functions import Array, relu, softmax
from cutaway.reference.loss import cross_entropy, cross_entropy_gradient
from cutaway.reference.masks import causal
from cutaway.reference.norms import rms_norm, rms_norm_backward
from cutaway.reference.optimizers import AdamRule, Moments, adamw

ANIMALS = ("cat", "dog", "hen", "pig")
PLACES = ("mat", "log", "box", "bed")
SENTENCES = tuple(
    f"a {animal} {verb} a {place}. "
    for animal in ANIMALS
    for verb, places in (("sat on", PLACES), ("ran to", ANIMALS))
    for place in places
    if place != animal
)
HELD_OUT = SENTENCES[3::9]  # sentences whose words are all known, but not in this combination
TRAINING = tuple(sentence for sentence in SENTENCES if sentence not in HELD_OUT)
CHARACTERS = "".join(sorted(set("".join(SENTENCES))))
CONTEXT, WIDTH, BATCH, STEPS, EPS = 16, 16, 12, 300, 1e-5
PARTS = ("positions", "mask", "attn", "ffn", "residual", "norms")
Parameters = Mapping[str, Array]


@dataclass(frozen=True)
class Recipe:
    """What a run varies; `without` is a part that the model never has, or none."""

    layers: int = 1
    heads: int = 2
    lr: float = 0.01
    seed: int = 0
    without: str = "none"


@dataclass(frozen=True)
class Run:
    """Losses a step in nats on the batch, on the held-out sentences every tenth step, and the model then."""

    losses: list[float]
    held_out: list[float]
    models: list[Parameters]


@lru_cache(maxsize=32)
def train(recipe: Recipe) -> Run:
    """All 300 steps; the same recipe gives the same run."""
    rng = np.random.default_rng(recipe.seed)
    model, text = begin(recipe, rng), encode("".join(rng.permutation(TRAINING)) * 2)
    moments = {name: Moments.of(each) for name, each in model.items()}
    run = Run([], [], [])
    rule = AdamRule(recipe.lr, beta2=0.99)
    for step in range(STEPS + 1):
        if step % 10 == 0:
            run.models.append(model)
            run.held_out.append(held_out_loss(model, recipe))
        starts = rng.integers(0, len(text) - CONTEXT, BATCH)
        windows = text[starts[:, None] + np.arange(CONTEXT + 1)]
        loss, gradients = gradient(model, windows[:, :-1], windows[:, 1:], recipe)
        run.losses.append(loss)
        stepped = {name: adamw(model[name], gradients[name], moments[name], rule) for name in model}
        model = {name: each[0] for name, each in stepped.items()}
        moments = {name: each[1] for name, each in stepped.items()}
    return run


def encode(text: str) -> np.ndarray:
    """Characters as ids."""
    return np.array([CHARACTERS.index(character) for character in text])


def begin(recipe: Recipe, rng: np.random.Generator) -> Parameters:
    """Fresh weights [out, in]: normal numbers of variance 1/in, gains 1."""
    model = {"embedding": rng.normal(size=(len(CHARACTERS), WIDTH)), "positions": rng.normal(size=(CONTEXT, WIDTH))}
    for i in range(recipe.layers):
        shapes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH)}
        shapes |= {"up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH)}
        for name, shape in shapes.items():
            model[f"blocks.{i}.{name}"] = rng.normal(size=shape) / np.sqrt(shape[1])
        model |= {f"blocks.{i}.norm1": np.ones(WIDTH), f"blocks.{i}.norm2": np.ones(WIDTH)}
    return model | {"final_norm": np.ones(WIDTH), "head": rng.normal(size=(len(CHARACTERS), WIDTH)) / np.sqrt(WIDTH)}


def held_out_loss(model: Parameters, recipe: Recipe) -> float:
    """Mean loss of the held-out sentences, each from its start."""
    rows = np.stack([encode(sentence.ljust(CONTEXT + 1))[: CONTEXT + 1] for sentence in HELD_OUT])
    return cross_entropy(forward(model, rows[:, :-1], recipe)[0], rows[:, 1:])


def forward(model: Parameters, ids: np.ndarray, recipe: Recipe) -> tuple[Array, list[dict[str, Array]]]:
    """Logits [B, T, V] of ids [B, T], and what each block computed on the way."""
    length = ids.shape[1]
    x = model["embedding"][ids] + (0.0 if recipe.without == "positions" else model["positions"][:length])
    places = np.arange(length)
    visible = True if recipe.without == "mask" else causal(places[:, None], places)
    kept = []
    for i in range(recipe.layers):
        x, seen = _block(model, f"blocks.{i}", x, visible, recipe)
        kept.append(seen)
    normed = _norm(x, model["final_norm"], recipe)
    return normed @ model["head"].T, [*kept, {"x": x, "normed": normed}]


def _block(model: Parameters, name: str, x: Array, visible, recipe: Recipe) -> tuple[Array, dict[str, Array]]:
    w = {part: model[f"{name}.{part}"] for part in ("q", "k", "v", "o", "up", "down", "norm1", "norm2")}
    h = _norm(x, w["norm1"], recipe)
    q, k, v = (split_heads(h @ w[part].T, recipe.heads) for part in "qkv")
    z, pattern = attend(q, k, v, visible)
    joined = join_heads(z)
    middle = _add(x, joined @ w["o"].T, recipe, "attn")
    normed = _norm(middle, w["norm2"], recipe)
    hidden = relu(normed @ w["up"].T)
    seen = {"x": x, "h": h, "q": q, "k": k, "v": v, "pattern": pattern, "joined": joined}
    return _add(middle, hidden @ w["down"].T, recipe, "ffn"), seen | {
        "middle": middle,
        "normed": normed,
        "hidden": hidden,
    }


def _norm(x: Array, gain: Array, recipe: Recipe) -> Array:
    return x if recipe.without == "norms" else rms_norm(x, gain, EPS)


def _add(x: Array, update: Array, recipe: Recipe, part: str) -> Array:
    if recipe.without == part:
        return x
    return update if recipe.without == "residual" else x + update


def gradient(model: Parameters, ids: np.ndarray, targets: np.ndarray, recipe: Recipe) -> tuple[float, dict[str, Array]]:
    """The loss and its gradient for every parameter, from the head down to the tables."""
    logits, (*blocks, last) = forward(model, ids, recipe)
    out = {name: np.zeros_like(each) for name, each in model.items()}
    upstream = cross_entropy_gradient(logits, targets)
    out["head"] = _outer(upstream, last["normed"])
    above, out["final_norm"] = _norm_back(upstream @ model["head"], last["x"], model["final_norm"], recipe)
    for i in reversed(range(recipe.layers)):
        above = _block_back(model, out, f"blocks.{i}", blocks[i], above, recipe)
    np.add.at(out["embedding"], ids, above)
    if recipe.without != "positions":
        out["positions"][: ids.shape[1]] = above.sum(0)
    return cross_entropy(logits, targets), out


def _block_back(model: Parameters, out: dict, name: str, seen: dict, above: Array, recipe: Recipe) -> Array:
    """Adds the block's gradients to `out`; returns the gradient of its input."""
    w = {part: model[f"{name}.{part}"] for part in ("q", "k", "v", "o", "up", "down", "norm1", "norm2")}
    if recipe.without != "ffn":
        out[f"{name}.down"] = _outer(above, seen["hidden"])
        pre = (above @ w["down"]) * (seen["hidden"] > 0)
        out[f"{name}.up"] = _outer(pre, seen["normed"])
        through, out[f"{name}.norm2"] = _norm_back(pre @ w["up"], seen["middle"], w["norm2"], recipe)
        above = through if recipe.without == "residual" else above + through
    if recipe.without != "attn":
        out[f"{name}.o"] = _outer(above, seen["joined"])
        parts = _attention_back(seen, split_heads(above @ w["o"], recipe.heads))
        for part, each in zip("qkv", parts, strict=True):
            out[f"{name}.{part}"] = _outer(each, seen["h"])
        below = sum((each @ w[part] for part, each in zip("qkv", parts, strict=True)), start=np.zeros_like(above))
        through, out[f"{name}.norm1"] = _norm_back(below, seen["x"], w["norm1"], recipe)
        above = through if recipe.without == "residual" else above + through
    return above


def _attention_back(seen: dict[str, Array], dz: Array) -> list[Array]:
    """Gradients of q, k, v [B, T, D] from that of z [B, N, T, H]: through the average, the softmax and the products."""
    q, k, v, pattern = (seen[name] for name in ("q", "k", "v", "pattern"))
    weights = dz @ np.swapaxes(v, -1, -2)
    scores = pattern * (weights - (weights * pattern).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return [
        join_heads(each) for each in (scores @ k, np.swapaxes(scores, -1, -2) @ q, np.swapaxes(pattern, -1, -2) @ dz)
    ]


def _norm_back(upstream: Array, x: Array, gain: Array, recipe: Recipe) -> tuple[Array, Array]:
    return (upstream, np.zeros_like(gain)) if recipe.without == "norms" else rms_norm_backward(upstream, x, gain, EPS)


def _outer(upstream: Array, x: Array) -> Array:
    """The gradient of W in y = x W^T, summed over the batch."""
    return upstream.reshape(-1, upstream.shape[-1]).T @ x.reshape(-1, x.shape[-1])


def next_character(model: Parameters, text: str, recipe: Recipe) -> Array:
    """Probabilities of what follows the text's last 16 characters [V]."""
    return softmax(forward(model, encode(text[-CONTEXT:])[None], recipe)[0][0, -1])
