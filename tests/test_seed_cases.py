"""Every number that the source pages print or imply, computed by the reference: one test a case.

An operation takes a case's inputs and returns its answer. A choice is computed too: each option is put to the
mathematics, and the one that holds is the answer; the expected answer in the inputs is never read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutaway.reference import attention, block, feedforward, functions, masks, norms, positions, residual
from cutaway.reference.loss import token_losses
from cutaway.spec.feedforward import gated_d_ff
from tests.seed_cases import CASES, FILE, IDS, check

Inputs = dict[str, Any]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_reference(case: dict[str, Any]) -> None:
    assert len(CASES) == 144, f"{FILE} is not there or not whole; point CUTAWAY_CASES at the folder that holds labs/"
    check(case, OPERATIONS[case["op"]](case))


def words_attend(x: Any, causal: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The pages' attention: no matrices, q = k = v = x."""
    x = functions.real(x)
    place = np.arange(len(x))
    seen = masks.causal(place[:, None], place) if causal else masks.full(place[:, None], place)
    return attention.attend(x, x, x, seen)


def order_lab(inputs: Inputs) -> np.ndarray:
    x = functions.real([inputs["table"][word] for word in inputs["words"]])
    if inputs["use_pe"]:
        x = x + table(*x.shape)
    return words_attend(x)[0][inputs["words"].index(inputs["watch"])]


def table(length: int, d: int) -> np.ndarray:
    return positions.sinusoidal(np.arange(length), d)


def ffn_weights(inputs: Inputs) -> dict[str, np.ndarray]:
    """The pages write x W; the reference x W^T."""
    names = {"W1": "up_proj.weight", "b1": "up_proj.bias", "W2": "down_proj.weight", "b2": "down_proj.bias"}
    return {new: functions.real(inputs[old]).T for old, new in names.items() if old in inputs}


def ffn(inputs: Inputs, x: Any = None) -> np.ndarray:
    return feedforward.dense(inputs["X"] if x is None else x, ffn_weights(inputs))


def pre_activation(inputs: Inputs) -> np.ndarray:
    return attention.project(inputs["X"], ffn_weights(inputs), "up_proj")


def alone_equals_together(inputs: Inputs) -> bool:
    together = ffn(inputs)
    return all(np.array_equal(ffn(inputs, [row])[0], together[i]) for i, row in enumerate(inputs["X"]))


def attention_weights(d: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"{name}_proj.weight": rng.normal(size=(d, d)) for name in "qkvo"}


def size(arrays: dict[str, np.ndarray]) -> int:
    return sum(array.size for array in arrays.values())


def ffn_share(inputs: Inputs) -> float:
    d, d_ff = inputs["d_model"], inputs["d_ff"]
    of_ffn = size(ffn_weights({"W1": np.zeros((d, d_ff)), "W2": np.zeros((d_ff, d))}))
    return of_ffn / (of_ffn + size(attention_weights(d)))


def stack_size(inputs: Inputs, d: int = 8) -> float:
    """The length of the stream after n layers; thirty matrices are drawn whatever n is."""
    rng = np.random.default_rng(inputs["seed"])
    x, matrices = rng.normal(size=d), rng.normal(size=(30, d, d)) / math.sqrt(d)
    return float(np.linalg.norm(residual.stack(x, matrices[: inputs["n"]], inputs["rule"], inputs["gain"])[-1]))


def decoder_stages(inputs: Inputs, seen_by: list[np.ndarray] | None = None) -> list[residual.Stage]:
    def norm(x: np.ndarray) -> np.ndarray:
        out = norms.layer_norm(x, eps=inputs.get("eps", 0.0))
        if seen_by is not None:
            seen_by.append(out)
        return out

    return block.pre_norm([lambda x: words_attend(x, causal=True)[0], lambda x: ffn(inputs, x)], norm)


def decoder(inputs: Inputs) -> np.ndarray:
    final = inputs.get("final", True)
    blocks = [decoder_stages(inputs)] * inputs["n"]
    return block.stream(inputs["x"], blocks, lambda x: norms.layer_norm(x, eps=inputs.get("eps", 0.0)) if final else x)


def decoder_trace(inputs: Inputs) -> dict[str, np.ndarray]:
    normed: list[np.ndarray] = []
    attend, feed = decoder_stages(inputs, normed)
    after_attn = residual.stage(inputs["x"], attend)
    out = residual.stage(after_attn, feed)
    hidden = functions.relu(pre_activation({**inputs, "X": normed[1]}))
    branches = {"attn": words_attend(normed[0], True)[0], "ffn": ffn(inputs, normed[1])}
    names = {"norm1": normed[0], "after_attn": after_attn, "norm2": normed[1], "hidden": hidden, "block_out": out}
    return {**names, **branches}


def explorer(inputs: Inputs) -> dict[str, Any]:
    """Shapes and counts of one block, measured on arrays that ran."""
    b, length, d, n = inputs["B"], inputs["L"], inputs["d_model"], inputs["heads"]
    weights = attention_weights(d)
    x = np.random.default_rng(1).normal(size=(b, length, d))
    place = np.arange(length)
    mask = masks.causal(place[:, None], place)
    out = attention.multi_head(x, weights, attention.Heads(n), mask)
    q = attention.queries(x, weights, attention.Heads(n))
    pattern = attention.pattern(q @ np.swapaxes(q, -1, -2), mask)
    ffn_arrays = {"W1": np.ones((d, inputs["d_ff"])), "W2": np.ones((inputs["d_ff"], d))}
    biases = {"b1": np.ones(inputs["d_ff"]), "b2": np.ones(d)}
    gain_and_shift = {"gain": np.ones(d), "shift": np.zeros(d)}
    return {
        "io": out.shape, "weights_per_head": pattern[:, 0].shape, "d_k": q.shape[-1], "mask": mask.shape,
        "q_per_head": q.shape, "weights": pattern.shape, "attention_parameters_no_bias": size(weights),
        "ffn_hidden": pre_activation({**ffn_arrays, "X": x}).shape,
        "ffn_parameters_no_bias": size(ffn_weights(ffn_arrays)),
        "ffn_parameters_with_bias": size(ffn_weights({**ffn_arrays, **biases})),
        "layernorm_parameters": size(gain_and_shift),
    }  # fmt: skip


def count_norms(inputs: Inputs) -> int:
    calls = 0

    def norm(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return norms.layer_norm(x)

    parts = [functions.identity, functions.identity]
    block.stream([[0.0, 4.0]], [block.pre_norm(parts, norm)] * inputs["blocks"], norm)
    return calls


def norms_on_path(inputs: Inputs) -> int:
    """Norms that the stream itself passes: with silent parts, a mark left by any other norm never reaches the end."""
    n, design = inputs["layers"], inputs["design"]
    make = {"post": block.post_norm, "pre": block.pre_norm}[design]
    x = np.zeros((1, 3))

    def reaches(marked: int) -> bool:
        calls = iter(range(n + 1))
        norm: Callable[[np.ndarray], np.ndarray] = lambda x: x + (next(calls) == marked)  # noqa: E731
        out = block.block(x, make([np.zeros_like] * n, norm))
        return bool((norm(out) if design == "pre" else out).any())

    return sum(reaches(i) for i in range(n + 1))


def turn(v: Any, angle: float) -> np.ndarray:
    return positions.rotate(v, [angle])


def rope_score(inputs: Inputs) -> float:
    q, k = (turn(inputs[name], inputs[at] * inputs["theta"]) for name, at in (("q", "m"), ("k", "n")))
    return float(q @ k)


def rope_demo(inputs: Inputs) -> list[float]:
    rng = np.random.default_rng(inputs["seed"])
    q, k = rng.normal(size=4), rng.normal(size=4)
    speed = positions.rope_frequencies(4)
    return [float(positions.rotate(q, m * speed) @ positions.rotate(k, n * speed)) for m, n in inputs["positions"]]


def masked_scores(inputs: Inputs) -> dict[str, np.ndarray]:
    raw = np.random.RandomState(inputs["seed"]).randn(inputs["L"], inputs["L"])
    place = np.arange(inputs["L"])
    return {"raw": raw, "weights": attention.pattern(raw, masks.causal(place[:, None], place))}


def swiglu(inputs: Inputs) -> np.ndarray:
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    weights = {f"{new}.weight": functions.real(inputs[f"W_{old}"]).T for old, new in names.items()}
    return feedforward.gated(inputs["x"], weights)


# Choices. Each option is a claim about the mathematics; the answer is the claim that holds.


def verdict(length: float) -> str:
    return "vanished" if length < 1e-3 else "very large" if length > 1e3 else "stable"


def order_choice() -> str:
    words = {"cat": [2, 0], "dog": [1, 1], "car": [0, 2]}
    one, other = (
        order_lab({"words": order, "table": words, "use_pe": False, "watch": "cat"})
        for order in (["cat", "dog", "car"], ["car", "dog", "cat"])
    )
    return "same" if np.allclose(one, other, rtol=0, atol=1e-12) else "different"


def stack_verdict() -> str:
    """What gain 0.5 does in 30 layers of x <- f(x), whatever the seed."""
    how = {"gain": 0.5, "n": 30, "rule": "f"}
    (answer,) = {verdict(stack_size({**how, "seed": seed})) for seed in range(20)}
    return answer


def rope_shift() -> str:
    how = {"q": [1, 0], "k": [0, 1], "theta": 0.5}
    before, after = (rope_score({**how, "m": 2, "n": 0}), rope_score({**how, "m": 12, "n": 10}))
    return "same" if abs(after - before) < 1e-12 else "larger" if after > before else "smaller"


def only(claims: dict[str, bool]) -> str:
    (answer,) = [name for name, holds in claims.items() if holds]
    return answer


def which_part() -> str:
    """Which part makes a score follow the distance between two words, wherever they stand?"""
    rng = np.random.default_rng(3)
    q, k, matrices = rng.normal(size=4), rng.normal(size=4), attention_weights(4)
    gate = {new: matrices[old] for new, old in zip(("gate_proj.weight", "up_proj.weight"), matrices, strict=False)}
    parts: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
        "rmsnorm": lambda x, at: norms.rms_norm(x),
        "swiglu": lambda x, at: feedforward.gated(x, gate),
        "rope": lambda x, at: positions.rotate(x, at * positions.rope_frequencies(4)),
    }

    def follows(part: Callable[[np.ndarray, int], np.ndarray]) -> bool:
        near, far, other = (float(part(q, m) @ part(k, n)) for m, n in ((9, 5), (5004, 5000), (6, 5)))
        return abs(near - far) < 1e-9 and abs(near - other) > 1e-3

    return only({name: follows(part) for name, part in parts.items()})


def one_stack() -> str:
    """Which claim about one causal stack is true? Tried on a decoder and an encoder of one layer."""
    rng = np.random.default_rng(5)
    words, weights = rng.normal(size=(5, 4)), attention_weights(4)
    targets, place = np.array([1, 3, 0, 2, 1]), np.arange(5)

    def losses(causal: bool, matrix: np.ndarray, x: np.ndarray = words, attend: bool = True) -> np.ndarray:
        seen = masks.causal(place[:, None], place) if causal else True
        inner = {**weights, "v_proj.weight": matrix}
        part = (lambda h: attention.multi_head(h[None], inner, attention.Heads(), seen)[0]) if attend else np.zeros_like
        return token_losses(block.block(x, block.pre_norm([part], norms.layer_norm)), targets)

    matrix, step = weights["v_proj.weight"], 1e-5

    def gradients(causal: bool) -> np.ndarray:
        """Of every token's loss for every weight, by central differences: [16, 5]."""
        moves = step * np.eye(16).reshape(16, 4, 4)
        return np.array([losses(causal, matrix + m) - losses(causal, matrix - m) for m in moves]) / (2 * step)

    changed = words + np.eye(5)[[0]].T * 0.5  # another first word
    last_without_attention = [losses(True, matrix, x, attend=False)[-1] for x in (words, changed)]
    downhill = matrix - 0.1 * gradients(causal=False).sum(1).reshape(4, 4)
    return only(
        {
            "one_sequence": bool((np.abs(gradients(causal=True)) > 1e-9).all()),  # each weight learns from each token
            "cheaper": last_without_attention[0] != last_without_attention[1],  # the prompt is still read without it
            "encoder_broken": losses(False, downhill).sum() >= losses(False, matrix).sum(),  # a step does not help
        }
    )


CHOICES: dict[str, Callable[[], str]] = {
    "l16.q.order_choice": order_choice,
    "l16.stack.page_default": stack_verdict,
    "l16.q.stack_choice": lambda: {"vanished": "vanish", "stable": "same", "very large": "explode"}[stack_verdict()],
    "l19.q.one_stack": one_stack,
    "l19.q.rope_shift": rope_shift,
    "l19.q.which_part": which_part,
}


def on_inputs(operation: Callable[[Inputs], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda case: operation(case["inputs"])


def step_sum(inputs: Inputs, norm: Callable[..., Any] = functions.identity) -> np.ndarray:
    made = residual.Stage([residual.Branch(lambda _: functions.real(inputs["f_out"]))], norm_sum=norm)
    return residual.stage(inputs["x"], made)


OPERATIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "choice": lambda case: CHOICES[case["name"]](),
    **{
        name: on_inputs(operation)
        for name, operation in {
            "order_lab": order_lab,
            "attention": lambda i: words_attend(i["X"], i["causal"])[0],
            "attention_weights": lambda i: words_attend(i["X"])[1],
            "positional_encoding": lambda i: table(i["L"], i["d"]),
            "positional_row": lambda i: positions.sinusoidal(i["pos"], i["d"]),
            "positional_item": lambda i: positions.sinusoidal(i["pos"], i["d"])[i["col"]],
            "positional_shape": lambda i: table(i["L"], i["d"]).shape,
            "pair_speed": lambda i: positions.sinusoidal_frequencies(i["d"])[i["k"]],
            "embed_scale": lambda i: math.sqrt(i["d_model"]),
            "embed": lambda i: functions.real(i["word"]) * i["factor"] + positions.sinusoidal(i["pos"], len(i["word"])),
            "add_pe": lambda i: functions.real(i["X"]) + table(*np.shape(i["X"])),
            "matmul_shape": lambda i: functions.linear(np.ones(i["a"]), np.ones(i["b"]).T).shape,
            "ffn_pre": pre_activation,
            "ffn_hidden": lambda i: functions.relu(pre_activation(i)),
            "ffn_units_on": lambda i: np.atleast_1d((pre_activation(i) > 0).sum(-1)),
            "ffn": ffn,
            "ffn_sublayer": lambda i: residual.stage(i["X"], residual.Stage([residual.Branch(lambda x: ffn(i, x))])),
            "ffn_alone_equals_together": alone_equals_together,
            "ffn_weight_share": ffn_share,
            "relu": lambda i: functions.relu(i["x"]),
            "mean_std": lambda i: [np.mean(i["x"]), math.sqrt((norms.centre(i["x"]) ** 2).mean())],
            "layer_norm": lambda i: norms.layer_norm(i["x"], eps=i.get("eps", 0.0)),
            "layer_norm_columns": lambda i: norms.column_norm(i["x"]),
            "layer_norm_count_means": lambda i: np.ones(i["shape"]).mean(-1).size,
            "layer_norm_size": lambda i: np.linalg.norm(norms.layer_norm(np.random.default_rng(0).normal(size=i["d"]))),
            "keepdims_shape": lambda i: np.ones(i["shape"]).mean(-1, keepdims=i["keepdims"]).shape,
            "scalar_power": lambda i: residual.stack([1.0], np.ones((i["n"], 1, 1)), "f", i["gain"])[-1][0],
            "stack": stack_size,
            "pre_norm_step": step_sum,
            "post_norm_step": lambda i: step_sum(i, norms.layer_norm),
            "count_norms_pre": count_norms,
            "norms_on_path": norms_on_path,
            "explorer": explorer,
            "decoder": decoder,
            "decoder_trace": decoder_trace,
            "rms_parts": lambda i: [np.square(i["x"]).mean(), 1 / norms.inverse_root(np.square(i["x"]).mean(), 0.0)],
            "rms_norm": lambda i: norms.rms_norm(i["x"], eps=i.get("eps", 0.0)),
            "rope_angle": lambda i: i["pos"] * i["theta"],
            "rope_rotate": lambda i: turn(i["v"], i["pos"] * i["theta"]),
            "rotate_degrees": lambda i: turn(i["v"], math.radians(i["degrees"])),
            "rope_score": rope_score,
            "rope_thetas": lambda i: positions.rope_frequencies(i["d_k"]),
            "rope_demo": rope_demo,
            "silu": lambda i: functions.silu(i["z"]),
            "swiglu_unit": lambda i: [feedforward.gate_value(i["g"]), feedforward.gate_value(i["g"]) * i["u"]],
            "silu_hand": lambda i: functions.sigmoid(-math.log(i["exp_minus_1"])),
            "swiglu": swiglu,
            "swiglu_ratio": lambda i: gated_d_ff(3000) / 3000,
            "degrees_per_radian": lambda i: math.degrees(math.atan2(*turn([1, 0], 1.0)[::-1])),
            "masked_scores": masked_scores,
        }.items()
    },
}
