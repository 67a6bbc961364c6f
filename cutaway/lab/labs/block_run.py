"""One block of each design, run on the reference's functions with every tensor kept, whole or with parts removed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cutaway.reference.attention import join_heads, pattern, project, split_heads
from cutaway.reference.functions import Array, relu, silu
from cutaway.reference.masks import causal, full
from cutaway.reference.norms import layer_norm, rms_norm
from cutaway.reference.positions import rope_frequencies, rotate, sinusoidal

EPS = 1e-5


@dataclass(frozen=True)
class Design:
    """What tells the four apart. post: norm(x + f(x)); otherwise x + f(norm(x)) and a final norm."""

    post: bool = False
    modern: bool = False  # RMSNorm, RoPE, SwiGLU
    encoder: bool = False

    @property
    def branches(self) -> tuple[str, ...]:
        """The sublayers of the decoder block in their order."""
        return ("attn", "cross", "ffn") if self.encoder else ("attn", "ffn")

    def parts(self) -> list[str]:
        """Everything that has a remove switch, in the order of the computation."""
        encoder = [f"encoder.{part}" for part in self._stack(("attn", "ffn"))] if self.encoder else []
        own = self._stack(self.branches)
        own[own.index("scale") : own.index("scale")] = ["mask"]
        return [*encoder, *own, *([] if self.post else ["final_norm"]), "layer"]

    def _stack(self, branches: tuple[str, ...]) -> list[str]:
        parts = [] if self.modern else ["positions"]
        for branch in branches:
            inside = {"attn": ["positions", "scale"] if self.modern else ["scale"], "ffn": ["gate"] * self.modern}
            norm, body = [f"{branch}.norm"], [branch, *inside.get(branch, []), f"{branch}.residual"]
            parts += body + norm if self.post else norm + body
        return parts


DESIGNS = {
    "post": Design(post=True),
    "pre": Design(),
    "modern": Design(modern=True),
    "encoder-decoder": Design(post=True, encoder=True),
}


@dataclass(frozen=True)
class Sizes:
    """Batch, target and source length, widths and heads."""

    batch: int
    length: int
    source: int
    d_model: int
    heads: int
    bias: bool

    @property
    def d_ff(self) -> int:
        """Four times the width, as in 2017."""
        return 4 * self.d_model

    @property
    def gated_d_ff(self) -> int:
        """The width that gives three matrices as many weights as two: 2/3 of d_ff, to the nearest whole number."""
        return (2 * self.d_ff + 1) // 3


def draw_weights(design: Design, sizes: Sizes, seed: int) -> dict[str, Array]:
    """Normal weights of variance 1/in, [out, in]; biases of size 0.1 where there are any."""
    generator = np.random.default_rng(seed)
    hidden = sizes.gated_d_ff if design.modern else sizes.d_ff
    weights: dict[str, Array] = {}
    for prefix, branches in (("encoder.", ("attn", "ffn")), ("", design.branches)):
        for branch in branches if design.encoder or not prefix else ():
            for name, shape in _shapes(branch, sizes.d_model, hidden, design.modern):
                weights[f"{prefix}{branch}.{name}.weight"] = generator.normal(size=shape) / math.sqrt(shape[1])
                if sizes.bias:
                    weights[f"{prefix}{branch}.{name}.bias"] = 0.1 * generator.normal(size=shape[0])
    return weights


def _shapes(branch: str, width: int, hidden: int, gated: bool) -> list[tuple[str, tuple[int, int]]]:
    if branch != "ffn":
        return [(f"{name}_proj", (width, width)) for name in "qkvo"]
    up = [("gate_proj", (hidden, width))] if gated else []
    return [*up, ("up_proj", (hidden, width)), ("down_proj", (width, hidden))]


@dataclass
class Run:
    """One run: `tensors` fills in the order of the computation, named as in a real model."""

    design: Design
    heads: int
    weights: dict[str, Array]
    removed: frozenset[str] = frozenset()
    tensors: dict[str, Array] = field(default_factory=dict)

    def all(self, x: Array, source: Array | None = None) -> dict[str, Array]:
        """Token vectors x [B, L, D] and, in an encoder-decoder, of the source [B, S, D] -> every tensor."""
        memory = None
        if self.design.encoder:
            assert source is not None
            memory = self._stack("encoder.", source, ("attn", "ffn"), None)
        x = self._stack("", x, self.design.branches, memory)
        if not self.design.post:
            self._keep("final_norm", self._norm("final_norm")(x))
        return self.tensors

    def _stack(self, prefix: str, x: Array, branches: tuple[str, ...], memory: Array | None) -> Array:
        self._keep(f"{prefix}embedding", x)
        if not self.design.modern and f"{prefix}positions" not in self.removed:
            x = x + sinusoidal(np.arange(x.shape[1]), x.shape[2])
        x = self._keep(f"{prefix}resid_pre", x)
        if f"{prefix}layer" in self.removed:
            return self._keep(f"{prefix}resid_post", x)
        ends = ["resid_mid"] if len(branches) == 2 else [f"resid.{i}" for i in range(len(branches) - 1)]
        for branch, end in zip(branches, [*ends, "resid_post"], strict=True):
            x = self._stage(f"{prefix}{branch}", f"{prefix}{end}", x, memory)
        return x

    def _stage(self, name: str, end: str, x: Array, memory: Array | None) -> Array:
        norm, post = self._norm(f"{name}.norm"), self.design.post
        h = self._keep(f"{name}.in", x if post else norm(x))
        update = np.zeros_like(x) if name in self.removed else self._branch(name, h, memory)
        self._keep(f"{name}.update", update)
        total = update if f"{name}.residual" in self.removed else x + update
        return self._keep(end, norm(self._keep(f"{name}.sum", total)) if post else total)

    def _branch(self, name: str, h: Array, memory: Array | None) -> Array:
        if name.endswith("ffn"):
            return self._feedforward(name, h)
        if name != "cross":
            return self._attention(name, h, h)
        assert memory is not None
        return self._attention(name, h, memory)

    def _attention(self, name: str, h: Array, read: Array) -> Array:
        q, k, v = (
            self._keep(f"{name}.{part}", split_heads(self._project(f"{name}.{part}_proj", x), self.heads))
            for part, x in (("q", h), ("k", read), ("v", read))
        )
        if self.design.modern:
            q, k = (self._keep(f"{name}.{part}_rot", self._turn(x)) for part, x in (("q", q), ("k", k)))
        scale = 1.0 if f"{name[:-4]}scale" in self.removed and name.endswith("attn") else 1 / math.sqrt(q.shape[-1])
        scores = self._keep(f"{name}.scores", q @ np.swapaxes(k, -1, -2) * scale)
        i, j = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
        rule = causal if name == "attn" and "mask" not in self.removed else full
        weights = self._keep(f"{name}.pattern", pattern(scores, rule(i, j)))
        z = self._keep(f"{name}.z", weights @ v)
        return self._keep(f"{name}.out", self._project(f"{name}.o_proj", join_heads(z)))

    def _feedforward(self, name: str, h: Array) -> Array:
        if not self.design.modern:
            hidden = relu(self._keep(f"{name}.pre", self._project(f"{name}.up_proj", h)))
        elif "gate" in self.removed:
            hidden = self._keep(f"{name}.value", self._project(f"{name}.up_proj", h))
        else:
            value = self._keep(f"{name}.value", self._project(f"{name}.up_proj", h))
            pre = self._keep(f"{name}.pre", self._project(f"{name}.gate_proj", h))
            hidden = self._keep(f"{name}.gate", silu(pre)) * value
        return self._keep(f"{name}.out", self._project(f"{name}.down_proj", self._keep(f"{name}.hidden", hidden)))

    def _turn(self, x: Array) -> Array:
        if "positions" in self.removed:
            return x
        return rotate(x, np.arange(x.shape[-2])[:, None] * rope_frequencies(x.shape[-1]))

    def _norm(self, name: str) -> Callable[[Array], Array]:
        if name in self.removed:
            return lambda x: x
        norm = rms_norm if self.design.modern else layer_norm
        return lambda x: norm(x, eps=EPS)

    def _project(self, name: str, x: Array) -> Array:
        return project(x, self.weights, name)

    def _keep(self, name: str, tensor: Array) -> Array:
        self.tensors[name] = tensor
        return tensor
