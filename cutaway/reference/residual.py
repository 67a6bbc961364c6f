"""How branches join the stream, and what depth does to a signal and to its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cutaway.reference.functions import Array, identity, real
from cutaway.reference.norms import layer_norm, layer_norm_backward

Function = Callable[[Array], Array]


@dataclass(frozen=True)
class Branch:
    """norm_out(part(norm_in(.)))."""

    part: Function
    norm_in: Function = identity
    norm_out: Function = identity
    scale: float | Array = 1.0


@dataclass(frozen=True)
class Stage:
    """One norm that feeds all branches, or a norm a branch; what they add to; a norm on the sum.

    skip: x, or `normed` for norm(x), or `none`: the stream becomes the update alone.
    """

    branches: Sequence[Branch]
    norm: Function = identity
    norm_sum: Function = identity
    skip: str = "x"


def stage(x: ArrayLike, how: Stage) -> Array:
    """norm_sum(skip + sum of scale * norm_out(part(norm_in(norm(x))))). x [B, T, D] -> [B, T, D].

    norm_in alone is pre-norm, norm_sum alone the 2017 post-norm, norm_in and norm_out Gemma 2, norm_out alone OLMo 2;
    a shared norm with two branches is the parallel block of GPT-J.
    """
    x = real(x)
    h = how.norm(x)
    updates = (branch.scale * branch.norm_out(branch.part(branch.norm_in(h))) for branch in how.branches)
    skips = {"x": x, "normed": h, "none": np.zeros_like(x)}
    return how.norm_sum(sum(updates, skips[how.skip]))


RULES = ("f", "res", "post", "pre")


def stack(x: ArrayLike, matrices: ArrayLike, rule: str, gain: float = 1.0, eps: float = 0.0) -> list[Array]:
    """The stream after each of n layers, x itself first. x [..., D], matrices [n, D, D]; layer i is f(x) = gain W_i x.

    f: x <- f(x); res: x <- x + f(x); post: x <- LayerNorm(x + f(x)); pre: x <- x + f(LayerNorm(x)).
    """
    states = [real(x)]
    for matrix in real(matrices):
        x = states[-1]
        read = layer_norm(x, eps=eps) if rule == "pre" else x
        update = gain * (read @ matrix.T)
        added = update if rule == "f" else x + update
        states.append(layer_norm(added, eps=eps) if rule == "post" else added)
    return states


def stack_backward(
    upstream: ArrayLike, states: Sequence[Array], matrices: ArrayLike, rule: str, gain: float = 1.0, eps: float = 0.0
) -> list[Array]:
    """dLoss/dx of each of `stack`'s states, first to last, from upstream = dLoss/d(last) [..., D].

    With the rows of the identity for upstream the results are the Jacobians dx_n/dx_i [D, D]. What `+ x` does is seen
    in one line: the gradient of the layer above comes down whole, beside what passes through f.
    """
    gradients = [real(upstream)]
    for x, matrix in zip(reversed(states[:-1]), reversed(real(matrices)), strict=True):
        above = gradients[-1]
        if rule == "post":
            above = layer_norm_backward(above, x + gain * (x @ matrix.T), eps=eps)[0]
        through = gain * (above @ matrix)
        if rule == "pre":
            through = layer_norm_backward(through, x, eps=eps)[0]
        gradients.append(through if rule == "f" else above + through)
    return gradients[::-1]


def norms_on_path(design: str, n_layers: int) -> tuple[int, int]:
    """How many norms stand on the residual path within the layers, and at its end: post (n, 0), pre (0, 1).

    A layer is one sublayer; a block of two sublayers counts twice.
    """
    return {"post": (n_layers, 0), "pre": (0, 1)}[design]
