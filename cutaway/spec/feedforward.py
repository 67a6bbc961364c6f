"""The feed-forward network: two matrices, a gated three, a mixture of experts, or none."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cutaway.errors import SpecError
from cutaway.spec.positions import Count, Positive
from cutaway.spec.record import Record

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sigmoid", "identity"]


class NoFeedForward(Record):
    """The branch gives 0, so x passes."""

    kind: Literal["no_ffn"] = "no_ffn"


class Dense(Record):
    """down(activation(up(x))): two matrices (Vaswani et al. 2017, arXiv:1706.03762)."""

    kind: Literal["dense"] = "dense"
    d_ff: Count
    activation: Activation = "relu"
    up_bias: bool = True
    down_bias: bool = True


class Gated(Record):
    """down(activation(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu, ReGLU with relu.

    (Shazeer 2020, arXiv:2002.05202; `identity` is the bilinear form and `removed` the gate replaced by 1.)
    `clamp` c: gate <= c and -c <= up <= c first; `alpha`: gate * sigmoid(alpha * gate) in place of SiLU's alpha = 1;
    `up_offset` is added to up.
    """

    kind: Literal["gated"] = "gated"
    d_ff: Count
    activation: Activation | Literal["removed"] = "silu"
    gate_bias: bool = False
    up_bias: bool = False
    down_bias: bool = False
    clamp: Positive | Literal["none"] = "none"
    alpha: Positive = 1.0
    up_offset: float = 0.0


Expert = Annotated[Dense | Gated, Field(discriminator="kind")]


class NoSharedExpert(Record):
    """Every expert is routed to."""

    kind: Literal["none"] = "none"


class SharedExpert(Record):
    """An expert that every token passes, added to the routed ones; `gated`: times sigmoid of a learned row of x."""

    kind: Literal["shared"] = "shared"
    expert: Expert
    gated: bool = False


Shared = Annotated[NoSharedExpert | SharedExpert, Field(discriminator="kind")]


class Router(Record):
    """Which experts a token takes, and with what weights.

    score `softmax`: over all experts, then the choice; `sigmoid`: each alone; `softmax_after`: softmax over the
    chosen logits alone. `choice_bias`: a stored bias a expert that picks but does not weigh (DeepSeek-V3 2024,
    arXiv:2412.19437). With groups only the best `n_active_groups` take part, a group's score being its best expert
    (`max`) or the sum of its best two (`top2`). `normalise`: chosen weights divided by their sum; `factor` last.
    Ties: the lower index first.
    """

    kind: Literal["router"] = "router"
    score: Literal["softmax", "sigmoid", "softmax_after"] = "softmax"
    normalise: bool = True
    factor: Positive = 1.0
    bias: bool = False
    choice_bias: bool = False
    n_groups: Count = 1
    n_active_groups: Count = 1
    group_score: Literal["max", "top2"] = "max"


class MixtureOfExperts(Record):
    """sum over the chosen experts of weight * expert(x) (Shazeer et al. 2017, arXiv:1701.06538).

    `load_balance` is the factor of the auxiliary loss n_experts * sum_e(share_e * mean probability_e)
    (Fedus et al. 2021, arXiv:2101.03961) in training.
    """

    kind: Literal["moe"] = "moe"
    n_experts: Annotated[int, Field(ge=1, le=10_000)]
    n_active: Count
    expert: Expert
    router: Router = Router()
    shared: Shared = NoSharedExpert()
    load_balance: Annotated[float, Field(ge=0.0)] = 0.0


def gated_d_ff(d_ff: int, multiple_of: int = 1, rounding: Literal["nearest", "up", "down"] = "nearest") -> int:
    """The hidden width of a gated network with as many weights as a two-matrix one of width d_ff: 2/3 d_ff, rounded.

    >>> gated_d_ff(2048), gated_d_ff(2048, multiple_of=128), gated_d_ff(2048, 256, "up")
    (1365, 1408, 1536)
    """
    if d_ff < 1 or multiple_of < 1:
        raise SpecError(f"gated_d_ff: d_ff {d_ff} and multiple_of {multiple_of} must both be at least 1")
    exact = 2 * d_ff / (3 * multiple_of)
    steps = {"nearest": int(exact + 0.5), "up": -(-2 * d_ff // (3 * multiple_of)), "down": int(exact)}[rounding]
    return max(1, steps) * multiple_of
