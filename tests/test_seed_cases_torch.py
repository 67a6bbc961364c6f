"""The same cases through the torch parts, wherever the model has a part that does what the case asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cutaway import spec
from cutaway.models.one_stack import OneStack
from cutaway.parts import positions
from cutaway.parts.build import Builder, build_norm
from cutaway.parts.functions import ACTIVATIONS
from cutaway.parts.linear import Linear
from cutaway.parts.norms import LayerNorm
from tests.seed_cases import CASES, check
from tests.seed_cases_parts import (
    Inputs,
    alone_equals_together,
    count,
    dense,
    embedded,
    fill,
    head,
    heard,
    inside,
    masked_scores,
    mean_std,
    network,
    norm,
    normed,
    order_lab,
    pair_speed,
    pattern,
    real,
    rms_parts,
    rope_demo,
    rope_score,
    run_part,
    share_of_weights,
    start,
    swiglu,
    swiglu_unit,
    tapped,
    turned,
    waves,
    words_attend,
)


def model(x: Any, stages: list[list[spec.Stage]], final: Any, arrays: dict[str, Any]) -> Callable[[], Tensor]:
    """A whole model whose tokens are the rows of x; calling it gives the last states [T, D]."""
    x = real(x)
    record = spec.Decoder(
        d_model=x.shape[1], vocab_size=len(x), context_length="unlimited", final_norm=final, head=spec.VectorHead(),
        layers=tuple(spec.Block(stages=tuple(each)) for each in stages),
    )  # fmt: skip
    module = fill(OneStack(record), {"embedding.tokens.weight": x, **arrays})

    def run() -> Tensor:
        return module(torch.arange(len(x))[None])[0]

    run.module = module  # type: ignore[attr-defined]
    return run


def numbers(run: Callable[[], Tensor]) -> Tensor:
    with torch.no_grad():
        return run()


def sublayer(inputs: Inputs) -> Tensor:
    record, arrays = network(inputs)
    stage = spec.Stage(branches=(spec.Branch(part=record),))
    named = {f"blocks.0.ffn.{name}": array for name, array in arrays.items()}
    return numbers(model(inputs["X"], [[stage]], spec.NoNorm(), named))


def decoder(inputs: Inputs) -> Callable[[], Tensor]:
    record, arrays = network(inputs)
    kind = norm(inputs)
    attention, weights = head(causal=True)
    d = np.shape(inputs["x"])[1]
    stages = [spec.Stage(branches=(spec.Branch(part=each, norm_in=kind),)) for each in (attention, record)]
    n = inputs.get("n", 1)
    named = {f"blocks.{i}.attn.{name}": array for i in range(n) for name, array in weights(d).items()}
    named |= {f"blocks.{i}.ffn.{name}": array for i in range(n) for name, array in arrays.items()}
    return model(inputs["x"], [stages] * n, kind if inputs.get("final", True) else spec.NoNorm(), named)


def decoder_trace(inputs: Inputs) -> dict[str, Tensor]:
    run = decoder({**inputs, "final": False})
    found = heard(run.module, run)  # type: ignore[attr-defined]
    taps = {
        "norm1": "attn.in", "attn": "attn.out", "after_attn": "resid_mid", "norm2": "ffn.in", "hidden": "ffn.hidden",
        "ffn": "ffn.out", "block_out": "resid_post",
    }  # fmt: skip
    return {name: found[f"blocks.0.{tap}"][0] for name, tap in taps.items()}


def stack(x: Any, matrices: Any, rule: str, gain: float) -> Tensor:
    """Layers of f(x) = gain W x, each a block whose network has no bend."""
    d, kind = len(x), norm({})
    linear = spec.Dense(d_ff=d, activation="identity", up_bias=False, down_bias=False)
    branch = spec.Branch(part=linear, norm_in=kind if rule == "pre" else spec.NoNorm())
    stage = spec.Stage(
        branches=(branch,), norm_sum=kind if rule == "post" else spec.NoNorm(),
        residual=spec.NoResidual() if rule == "f" else spec.Add(),
    )  # fmt: skip
    named = {f"blocks.{i}.ffn.up_proj.weight": matrix for i, matrix in enumerate(matrices)}
    named |= {f"blocks.{i}.ffn.down_proj.weight": gain * np.eye(d) for i in range(len(matrices))}
    return numbers(model([x], [[stage]] * len(matrices), spec.NoNorm(), named))[0]


def stack_size(inputs: Inputs, d: int = 8) -> Tensor:
    rng = np.random.default_rng(inputs["seed"])
    x, matrices = rng.normal(size=d), rng.normal(size=(30, d, d)) / math.sqrt(d)
    return stack(x, matrices[: inputs["n"]], inputs["rule"], inputs["gain"]).norm()


def step_sum(inputs: Inputs, post: bool) -> Tensor:
    """x + f(x) where the part's output is a bias alone."""
    f = spec.Dense(d_ff=1, up_bias=False)
    stage = spec.Stage(branches=(spec.Branch(part=f),), norm_sum=norm(inputs) if post else spec.NoNorm())
    d = len(inputs["x"])
    arrays = {
        "up_proj.weight": np.zeros((1, d)),
        "down_proj.weight": np.zeros((d, 1)),
        "down_proj.bias": inputs["f_out"],
    }
    named = {f"blocks.0.ffn.{name}": array for name, array in arrays.items()}
    return numbers(model([inputs["x"]], [[stage]], spec.NoNorm(), named))[0]


def count_norms(inputs: Inputs) -> int:
    kind = norm({})
    parts = (spec.NoAttention(), spec.NoFeedForward())
    stages = [spec.Stage(branches=(spec.Branch(part=each, norm_in=kind),)) for each in parts]
    run = model([[0.0, 4.0]], [stages] * inputs["blocks"], kind, {})
    return sum(isinstance(each, LayerNorm) for each in run.module.modules())  # type: ignore[attr-defined]


def norms_on_path(inputs: Inputs) -> int:
    """Norms whose gain has a gradient although every part gives 0."""
    kind, post = spec.LayerNorm(), inputs["design"] == "post"
    branch = spec.Branch(part=spec.NoFeedForward(), norm_in=spec.NoNorm() if post else kind)
    stage = spec.Stage(branches=(branch,), norm_sum=kind if post else spec.NoNorm())
    where = "norm_sum" if post else "norm_in"
    rng = np.random.default_rng(0)
    named = {f"blocks.{i}.ffn.{where}": None for i in range(inputs["layers"])} | ({} if post else {"final_norm": None})
    arrays = {f"{name}.{kind}": rng.normal(size=4) for name in named for kind in ("weight", "bias")}
    run = model(rng.normal(size=(1, 4)), [[stage]] * inputs["layers"], spec.NoNorm() if post else kind, arrays)
    (run() * real([1, 2, 3, 4])).sum().backward()
    gains = [each.weight.grad for each in run.module.modules() if isinstance(each, LayerNorm)]  # type: ignore[attr-defined]
    return sum(gain is not None and bool(gain.abs().max() > 1e-12) for gain in gains)


def explorer(inputs: Inputs) -> dict[str, Any]:
    b, n, d = inputs["B"], inputs["L"], inputs["d_model"]
    builder = Builder(d, spec.Dropout())
    attention, bare = builder.part(spec.MultiHead(n_heads=inputs["heads"])).double(), spec.Dense(d_ff=inputs["d_ff"])
    ffn = builder.part(bare).double()
    for each in (*attention.parameters(), *ffn.parameters()):
        nn.init.normal_(each, generator=torch.Generator().manual_seed(0))
    x, step = torch.ones(b, n, d, dtype=torch.float64), start((b, n))
    of_attention = heard(attention, lambda: attention(x, step, None))
    seen = of_attention["pattern"]
    return {
        "io": attention(x, step, None).shape, "weights_per_head": seen[:, 0].shape, "weights": seen.shape,
        "d_k": of_attention["q"].shape[-1], "q_per_head": of_attention["q"].shape, "mask": seen.shape[-2:],
        "attention_parameters_no_bias": count(attention),
        "ffn_hidden": heard(ffn, lambda: ffn(x, step, None))["hidden"].shape,
        "ffn_parameters_no_bias": count(builder.part(bare.replace(up_bias=False, down_bias=False))),
        "ffn_parameters_with_bias": count(ffn), "layernorm_parameters": count(build_norm(spec.LayerNorm(), d)),
    }  # fmt: skip


def same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=1e-12)


def order_choice() -> str:
    table = {"cat": [2, 0], "dog": [1, 1], "car": [0, 2]}
    orders = (["cat", "dog", "car"], ["car", "dog", "cat"])
    outputs = [order_lab({"words": each, "table": table, "use_pe": False, "watch": "cat"}) for each in orders]
    return "same" if same(*outputs) else "different"


def rope_shift() -> str:
    how = {"q": [1, 0], "k": [0, 1], "theta": 0.5}
    before, after = (rope_score({**how, "m": m, "n": n}) for m, n in ((2, 0), (12, 10)))
    return "same" if same(before, after) else "larger" if after > before else "smaller"


def stack_verdict() -> str:
    how = {"gain": 0.5, "n": 30, "rule": "f"}
    sizes = [float(stack_size({**how, "seed": seed})) for seed in range(5)]
    (answer,) = {"vanished" if size < 1e-3 else "very large" if size > 1e3 else "stable" for size in sizes}
    return answer


CHOICES: dict[str, Callable[[], str]] = {
    "l16.q.order_choice": order_choice,
    "l16.stack.page_default": stack_verdict,
    "l16.q.stack_choice": lambda: {"vanished": "vanish", "stable": "same", "very large": "explode"}[stack_verdict()],
    "l19.q.rope_shift": rope_shift,
}
OPERATIONS: dict[str, Callable[[Inputs], Any]] = {
    "order_lab": order_lab,
    "attention": lambda i: words_attend(i["X"], i["causal"]),
    "attention_weights": lambda i: pattern(i["X"]),
    "masked_scores": masked_scores,
    "positional_encoding": lambda i: waves(range(i["L"]), i["d"]),
    "positional_row": lambda i: waves(i["pos"], i["d"]),
    "positional_item": lambda i: waves(i["pos"], i["d"])[i["col"]],
    "positional_shape": lambda i: waves(range(i["L"]), i["d"]).shape,
    "pair_speed": pair_speed,
    "embed_scale": lambda i: embedded(np.ones((1, i["d_model"])), "sqrt_d_model", spec.NoPositions())[0, 0],
    "embed": lambda i: embedded(i["word"], float(i["factor"]), at=i["pos"])[0],
    "add_pe": lambda i: embedded(i["X"]),
    "rope_angle": lambda i: torch.atan2(*turned([1, 0], i["pos"], i["theta"]).flip(0)),
    "rope_rotate": lambda i: turned(i["v"], i["pos"], i["theta"]),
    "rotate_degrees": lambda i: turned(i["v"], 1, math.radians(i["degrees"])),
    "rope_score": rope_score,
    "rope_thetas": lambda i: positions.rope_frequencies(spec.RoPE(), i["d_k"]),
    "rope_demo": rope_demo,
    "layer_norm": normed,
    "layer_norm_size": lambda i: normed({"x": np.random.default_rng(0).normal(size=i["d"])}).norm(),
    "layer_norm_count_means": lambda i: tapped(np.ones(i["shape"]), spec.LayerNorm)["scale"].numel(),
    "mean_std": mean_std,
    "rms_norm": lambda i: normed(i, spec.RMSNorm),
    "rms_parts": rms_parts,
    "matmul_shape": lambda i: Linear(i["b"][0], i["b"][1], bias=False)(torch.ones(i["a"])).shape,
    "relu": lambda i: ACTIVATIONS["relu"](real(i["x"])),
    "silu": lambda i: ACTIVATIONS["silu"](real(i["z"])),
    "ffn_pre": lambda i: inside(i, "pre"),
    "ffn_hidden": lambda i: inside(i, "hidden"),
    "ffn_units_on": lambda i: torch.atleast_1d((inside(i, "hidden") > 0).sum(-1)),
    "ffn": lambda i: run_part(dense(i), i["X"]),
    "ffn_sublayer": sublayer,
    "ffn_alone_equals_together": alone_equals_together,
    "ffn_weight_share": share_of_weights,
    "swiglu": swiglu,
    "swiglu_unit": swiglu_unit,
    "stack": stack_size,
    "scalar_power": lambda i: stack([1.0], np.ones((i["n"], 1, 1)), "f", i["gain"])[0],
    "pre_norm_step": lambda i: step_sum(i, post=False),
    "post_norm_step": lambda i: step_sum(i, post=True),
    "count_norms_pre": count_norms,
    "norms_on_path": norms_on_path,
    "explorer": explorer,
    "decoder": lambda i: numbers(decoder(i)),
    "decoder_trace": decoder_trace,
}
HERE = [case for case in CASES if case["op"] in OPERATIONS or case["name"] in CHOICES]


@pytest.mark.parametrize("case", HERE, ids=[f"torch:seed_cases:{case['name']}" for case in HERE])
def test_torch(case: dict[str, Any]) -> None:
    answer = CHOICES[case["name"]]() if case["op"] == "choice" else OPERATIONS[case["op"]](case["inputs"])
    check(case, answer)


def test_the_list_of_cases_with_a_model_part(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{len(HERE)} of {len(CASES)} cases through torch: " + " ".join(case["name"] for case in HERE))
    assert len(HERE) >= 80
