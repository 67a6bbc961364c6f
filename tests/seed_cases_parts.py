"""What the source pages compute, done by single torch parts: attention, positions, norms, feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.parts import positions
from cutaway.parts.build import Builder, build_embedding, build_norm
from cutaway.parts.embedding import sinusoids
from cutaway.parts.step import Given, Step, begin
from cutaway.tap import listening

Inputs = dict[str, Any]
SINES = spec.Sinusoidal()


def norm(inputs: Inputs, kind: type = spec.LayerNorm) -> Any:
    """A norm of the pages: nothing learned, eps 0 unless the case names one."""
    learned = {"gain": False, "shift": False} if kind is spec.LayerNorm else {"gain": "none"}
    return kind(eps=inputs.get("eps", 0.0), **learned)


def real(x: Any) -> Tensor:
    return torch.tensor(np.asarray(x, dtype=np.float64))


def start(shape: tuple[int, int]) -> Step:
    return begin(torch.zeros(shape, dtype=torch.long), Given(), None, torch.float64, None)


def fill(module: nn.Module, arrays: dict[str, Any]) -> nn.Module:
    """The module in float64 with every one of its weights given by name."""
    module.double().load_state_dict({name: real(array) for name, array in arrays.items()}, strict=True)
    return module.eval()


def heard(model: nn.Module, run: Callable[[], Any], *patterns: str) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    with torch.no_grad(), listening(model, lambda name, x: found.update({name: x}), *patterns):
        run()
    return found


def part(record: Any, d: int, arrays: dict[str, Any]) -> nn.Module:
    return fill(Builder(d, spec.Dropout()).part(record), arrays)


def run_part(module: nn.Module, x: Any) -> Tensor:
    """The part on one row of words [T, D]."""
    rows = torch.atleast_2d(real(x))[None]
    with torch.no_grad():
        return module(rows, start((1, rows.shape[1])), None)[0]


# Attention and positions


def head(causal: bool = False, **arrays: Any) -> tuple[Any, Callable[[int], dict[str, Any]]]:
    """One head without matrices of its own: identities, unless given."""
    record = spec.MultiHead(n_heads=1, mask=spec.CausalMask() if causal else spec.FullMask())
    return record, lambda d: {f"{name}_proj.weight": arrays.get(name, np.eye(d)) for name in "qkvo"}


def words_attend(x: Any, causal: bool = False) -> Tensor:
    record, weights = head(causal)
    return run_part(part(record, np.shape(x)[1], weights(np.shape(x)[1])), x)


def pattern(x: Any) -> Tensor:
    record, weights = head()
    module = part(record, np.shape(x)[1], weights(np.shape(x)[1]))
    return heard(module, lambda: run_part(module, x), "pattern")["pattern"][0, 0]


def masked_scores(inputs: Inputs) -> dict[str, Tensor]:
    """Scores that are a given grid: k the identity, q the grid, no scale."""
    n = inputs["L"]
    raw = np.random.RandomState(inputs["seed"]).randn(n, n)
    record, weights = head(causal=True, q=raw.T)
    module = part(record.replace(scale=1.0), n, weights(n))
    found = heard(module, lambda: run_part(module, np.eye(n)), "scores", "pattern")
    shown = found["scores"][0, 0]
    return {"raw": torch.where(shown.isinf(), real(raw), shown), "weights": found["pattern"][0, 0]}


def embedded(words: Any, factor: Any = 1.0, places: Any = SINES, at: int = 0) -> Tensor:
    """The embedding of words [T, D], one word standing at position `at`."""
    words = torch.atleast_2d(real(words))
    ids = torch.arange(len(words))[None]
    d = words.shape[1]
    module = build_embedding(spec.TokenEmbedding(factor=factor, positions=places), d, len(words), 0.0)
    fill(module, {"tokens.weight": words})
    with torch.no_grad():
        ids = torch.cat([ids.new_zeros(1, at), ids], 1)
        return module(ids, start(tuple(ids.shape)))[0, at:]


def order_lab(inputs: Inputs) -> Tensor:
    x = real([inputs["table"][word] for word in inputs["words"]])
    x = embedded(x) if inputs["use_pe"] else x
    return words_attend(x)[inputs["words"].index(inputs["watch"])]


def waves(rows: Any, d: int) -> Tensor:
    return sinusoids(SINES, torch.as_tensor(rows), d, torch.float64)


def pair_speed(inputs: Inputs) -> Tensor:
    sin, cos = waves([1], inputs["d"])[0].unflatten(-1, (-1, 2))[inputs["k"]]
    return torch.atan2(sin, cos)


def turned(v: Any, place: int, theta: float | None) -> Tensor:
    """v rotated for its place; a pair's own speed is what a linear scaling makes of 1."""
    scaling = spec.NoScaling() if theta is None else spec.LinearScaling(factor=1 / theta)
    record, v = spec.RoPE(scaling=scaling), real(v)
    places = torch.tensor([[place]])
    cos, sin = positions.rotation_tables(record, len(v), places, places[0] + 1, torch.float64)
    return positions.turn(v, cos, sin, record.layout)[0, 0, 0]


def rope_score(inputs: Inputs) -> Tensor:
    theta = inputs["theta"]
    return turned(inputs["q"], inputs["m"], theta) @ turned(inputs["k"], inputs["n"], theta)


def rope_demo(inputs: Inputs) -> list[Tensor]:
    rng = np.random.default_rng(inputs["seed"])
    q, k = rng.normal(size=4), rng.normal(size=4)
    return [turned(q, m, None) @ turned(k, n, None) for m, n in inputs["positions"]]


# Norms


def normed(inputs: Inputs, kind: type = spec.LayerNorm) -> Tensor:
    x = real(inputs["x"])
    return build_norm(norm(inputs, kind), x.shape[-1])(x)


def tapped(x: Any, kind: type) -> dict[str, Tensor]:
    x = real(x)
    module = build_norm(norm({}, kind), x.shape[-1])
    return heard(module, lambda: module(x))


def mean_std(inputs: Inputs) -> list[Tensor]:
    found = tapped(inputs["x"], spec.LayerNorm)
    return [(real(inputs["x"]) - found["normed"] * found["scale"])[0], found["scale"][0]]


def rms_parts(inputs: Inputs) -> list[Tensor]:
    scale = tapped(inputs["x"], spec.RMSNorm)["scale"][0]
    return [scale**2, scale]


# Feed-forward networks


def network(inputs: Inputs) -> tuple[Any, dict[str, Any]]:
    biased = "b1" in inputs
    record = spec.Dense(d_ff=len(inputs["W1"][0]), up_bias=biased, down_bias="b2" in inputs)
    names = {"W1": "up_proj.weight", "b1": "up_proj.bias", "W2": "down_proj.weight", "b2": "down_proj.bias"}
    return record, {new: np.transpose(inputs[old]) for old, new in names.items() if old in inputs}


def dense(inputs: Inputs) -> nn.Module:
    record, arrays = network(inputs)
    d = len(inputs["W1"])
    arrays.setdefault("down_proj.weight", torch.zeros(d, record.d_ff))
    return part(record, d, arrays)


def inside(inputs: Inputs, name: str) -> Tensor:
    module = dense(inputs)
    found = heard(module, lambda: run_part(module, inputs["X"]), name)[name][0]
    return found[0] if np.ndim(inputs["X"]) == 1 else found


def alone_equals_together(inputs: Inputs) -> bool:
    module = dense(inputs)
    together = run_part(module, inputs["X"])
    return all(torch.equal(run_part(module, row)[0], together[i]) for i, row in enumerate(inputs["X"]))


def swiglu(inputs: Inputs) -> Tensor:
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    arrays = {f"{new}.weight": np.transpose(inputs[f"W_{old}"]) for old, new in names.items()}
    d_ff, d = arrays["gate_proj.weight"].shape
    return run_part(part(spec.Gated(d_ff=d_ff), d, arrays), inputs["x"])


def swiglu_unit(inputs: Inputs) -> list[Tensor]:
    """The lab's gate and value as a network of one unit that reads 1."""
    arrays = {"gate_proj.weight": [[inputs["g"]]], "up_proj.weight": [[inputs["u"]]], "down_proj.weight": [[1.0]]}
    module = part(spec.Gated(d_ff=1), 1, arrays)
    found = heard(module, lambda: run_part(module, [[1.0]]), "gate")
    return [found["gate"][0, 0, 0], run_part(module, [[1.0]])[0, 0]]


def count(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def share_of_weights(inputs: Inputs) -> float:
    d = inputs["d_model"]
    with torch.device("meta"):
        builder = Builder(d, spec.Dropout())
        ffn = count(builder.part(spec.Dense(d_ff=inputs["d_ff"], up_bias=False, down_bias=False)))
        return ffn / (ffn + count(builder.part(spec.MultiHead(n_heads=8))))
