"""Every number that the source pages print or imply, read off a lab or made by an exercise's solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutaway.lab import labs
from cutaway.lab.exercises import load
from cutaway.lab.worker import decode, observe
from tests.seed_cases import CASES, FILE, IDS, check

Inputs = dict[str, Any]
ELSEWHERE = {
    "choice": "a question, judged in tests/lab/content",
    "degrees_per_radian": "a line of text",
    "rotate_degrees": "a line of text; the same turn in radians is a case of the exercise",
    "layer_norm_count_means": "a question about a shape",
    "keepdims_shape": "a line of text about NumPy",
    "silu_hand": "a question's arithmetic with a rounded number",
}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case(case: Inputs) -> None:
    assert len(CASES) == 144, f"{FILE} is not there or not whole; point CUTAWAY_CASES at the folder that holds labs/"
    if case["op"] in ELSEWHERE:
        assert case["op"] not in SHOWN
        return
    check(case, SHOWN[case["op"]](case["inputs"], case["name"]))


def order(inputs: Inputs, name: str) -> Any:
    words = inputs["words"]
    state = {"orders": [words, words], "pe": inputs["use_pe"], "watch": inputs["watch"], "vectors": inputs["table"]}
    return labs.run("order", state)["orders"][0]["output"]


def attended(key: str) -> Callable[[Inputs, str], Any]:
    def shown(inputs: Inputs, name: str) -> Any:
        words = [f"w{i}" for i in range(len(inputs["X"]))]
        state = {
            "orders": [words, words], "watch": "w0", "causal": inputs.get("causal", False),
            "vectors": dict(zip(words, inputs["X"], strict=True)),
        }  # fmt: skip
        return labs.run("order", state)["orders"][0][key]

    return shown


def table(inputs: Inputs, name: str) -> np.ndarray:
    length, d = inputs.get("L", 16), inputs["d"]
    return np.array(labs.run("pe", {"L": length, "d": d, "row": 0})["table"])


def embedded(inputs: Inputs, name: str) -> Any:
    assert inputs["pos"] == 0
    return labs.run("pe", {"word": inputs["word"], "factor": inputs["factor"]})["worked"]["scaled"]


def ffn(key: str) -> Callable[[Inputs, str], Any]:
    def shown(inputs: Inputs, name: str) -> Any:
        x = np.atleast_2d(inputs["X"]).tolist()
        shown = labs.run("ffn", {"X": [*x, *[[0, 0]] * (3 - len(x))]})
        assert all(shown[part] == inputs[part] for part in ("W1", "b1") if part in inputs)
        values = shown[key][: len(x)]
        return values[0] if np.ndim(inputs["X"]) == 1 and key != "counts" else values

    return shown


def ffn_matmul(inputs: Inputs, name: str) -> Any:
    shapes = dict(labs.run("ffn", {})["shapes"])
    result = "hidden" if inputs["a"] == [3, 2] else "output"
    return [int(size) for size in shapes[result].strip("()").split(",")]


def four_numbers(lab: str, *path: str) -> Callable[[Inputs, str], Any]:
    def shown(inputs: Inputs, name: str) -> Any:
        result = labs.run(lab, {"word" if lab == "layernorm" else "x": inputs["x"]})
        for key in path:
            result = result[key]
        return result

    return shown


def mean_std(inputs: Inputs, name: str) -> Any:
    result = labs.run("layernorm", {"word": inputs["x"]})
    same = labs.run("norms", {"x": inputs["x"]})["layer_norm"]
    np.testing.assert_allclose([same["mean"], same["std"]], [result["mean"], result["std"]], atol=1e-12)
    return [result["mean"], result["std"]]


def layer_norm(inputs: Inputs, name: str) -> Any:
    if ".ex." in name:
        return exercise("layer-norm", np.array(inputs["x"], dtype=float), inputs.get("eps", 0.0))
    if np.ndim(inputs["x"]) == 1:
        return labs.run("layernorm", {"word": inputs["x"]})["out"]
    return labs.run("layernorm", {"table": inputs["x"]})["table_out"]


def columns(inputs: Inputs, name: str) -> Any:
    return labs.run("layernorm", {"table": inputs["x"], "axis": "column"})["table_out"]


def stack_size(inputs: Inputs, name: str) -> Any:
    return labs.run("stack", inputs)["size"]


def explorer(inputs: Inputs, name: str) -> Any:
    state = {key: inputs[key] for key in ("B", "L", "d_model", "heads")}
    attention, network, norm = (labs.run("block", state | {"part": part}) for part in ("attn", "ffn", "attn.norm"))
    shapes = dict(attention["part"]["shapes"])
    tensors = {tensor["name"]: tensor["shape"] for tensor in attention["tensors"]}
    return {
        "io": tensors["resid_post"], "weights_per_head": shapes["weights per head"]["sizes"],
        "d_k": attention["sizes"]["d_k"], "mask": shapes["mask"]["sizes"], "q_per_head": tensors["attn.q"],
        "weights": tensors["attn.pattern"],
        "attention_parameters_no_bias": attention["part"]["parameters_without_bias"],
        "ffn_hidden": tensors["ffn.hidden"], "ffn_parameters_no_bias": network["part"]["parameters_without_bias"],
        "ffn_parameters_with_bias": network["part"]["parameters_with_bias"],
        "layernorm_parameters": norm["part"]["parameters"],
    }  # fmt: skip


def norms_on_path(inputs: Inputs, name: str) -> Any:
    shown = labs.run("residual-path", inputs)
    return shown["in_layers"] + shown["at_end"]


def count_norms(inputs: Inputs, name: str) -> Any:
    one_block = labs.run("block", {"design": "pre"})["nodes"]
    inside = sum(node["kind"] == "norm" for node in one_block)
    return inside * inputs["blocks"] + sum(node["kind"] == "final_norm" for node in one_block)


def sublayer_step(design: str) -> Callable[[Inputs, str], Any]:
    def shown(inputs: Inputs, name: str) -> Any:
        x, f = ([*values, *[0] * (4 - len(values))] for values in (inputs["x"], inputs["f_out"]))
        return labs.run("residual-path", {"x": x, "f": f})["worked"][design][: len(inputs["x"])]

    return shown


def rms_norm(inputs: Inputs, name: str) -> Any:
    if ".ex." in name:
        return exercise("rms-norm", np.array(inputs["x"], dtype=float), inputs.get("eps", 0.0))
    return labs.run("norms", {"x": inputs["x"]})["rms_norm"]["out"]


def rotated(inputs: Inputs, name: str) -> Any:
    if inputs["pos"] < 0:
        return exercise("rotate", np.array(inputs["v"], dtype=float), inputs["pos"], inputs["theta"])
    state = {"q": inputs["v"], "m": inputs["pos"], "theta": inputs["theta"]}
    as_key = {"k": inputs["v"], "n": inputs["pos"], "theta": inputs["theta"]}
    np.testing.assert_allclose(labs.run("rope", as_key)["k_after"], labs.run("rope", state)["q_after"])
    return labs.run("rope", state)["q_after"]


def rope_score(inputs: Inputs, name: str) -> Any:
    shown = labs.run("rope", inputs)
    assert shown["without"] == 0
    return shown["score"]


def rope_demo(inputs: Inputs, name: str) -> Any:
    return [labs.run("rope", {"d_k": 4, "m": m, "n": n})["score"] for m, n in inputs["positions"]]


def masked(inputs: Inputs, name: str) -> Any:
    shown, bare = labs.run("mask", {}), labs.run("mask", {"masked": False})
    assert shown["masked_scores"][0][1:] == [None] * 3
    return {"raw": bare["masked_scores"], "weights": shown["weights"]}


def decoder(inputs: Inputs, name: str) -> Any:
    weights = {key: np.array(inputs[key], dtype=float) for key in ("W1", "b1", "W2", "b2")}
    x, n = np.array(inputs["x"], dtype=float), inputs["n"]
    code = load("decoder").solution.replace("eps=1e-5", f"eps={inputs.get('eps', 0.0)!r}")
    outcome = run_code("decoder", code, (x, n), weights)
    return decode(outcome["value"] if inputs.get("final", True) else outcome["spied"]["layer_norm"])


def decoder_trace(inputs: Inputs, name: str) -> Any:
    """The steps of the one-token sentence, by the functions that the exercise gives."""
    steps = """
def decoder(x, n_blocks):
    h = layer_norm(x, 0.0)
    a = attention(h, causal_mask(len(x)))
    m = layer_norm(x + a, 0.0)
    hidden, f = np.maximum(0, m @ W1 + b1), ffn(m)
    steps = {"norm1": h, "attn": a, "after_attn": x + a, "norm2": m}
    return {**steps, "hidden": hidden, "ffn": f, "block_out": x + a + f}
"""
    weights = {key: np.array(inputs[key], dtype=float) for key in ("W1", "b1", "W2", "b2")}
    code = load("decoder").solution + steps
    return decode(run_code("decoder", code, (np.array(inputs["x"], dtype=float), 1), weights)["value"])


def swiglu(inputs: Inputs, name: str) -> Any:
    parts = (np.array(inputs[key], dtype=float) for key in ("x", "W_gate", "W_up", "W_down"))
    return exercise("swiglu", *parts)


def exercise(exercise_id: str, *args: Any) -> Any:
    return decode(run_code(exercise_id, load(exercise_id).solution, args, {})["value"])


def run_code(exercise_id: str, code: str, args: tuple, given: dict) -> dict:
    from dataclasses import replace

    from cutaway.lab.exercises.exercise import Case

    plan = replace(load(exercise_id), cases=(Case(args, given),)).plan()
    with np.errstate(all="ignore"):
        return observe(code, plan)["cases"][0]


SHOWN: dict[str, Callable[[Inputs, str], Any]] = {
    "order_lab": order,
    "attention": attended("outputs"),
    "attention_weights": attended("weights"),
    "positional_encoding": table,
    "positional_row": lambda i, n: labs.run("pe", {"d": i["d"], "row": i["pos"]})["vector"],
    "positional_item": lambda i, n: table({**i, "L": 1}, n)[i["pos"], i["col"]],
    "positional_shape": lambda i, n: list(table(i, n).shape),
    "pair_speed": lambda i, n: labs.run("pe", {"L": 4, "d": i["d"]})["speeds"][i["k"]],
    "embed_scale": lambda i, n: labs.run("pe", {"d": i["d_model"]})["worked"]["root"],
    "embed": embedded,
    "add_pe": lambda i, n: np.array(i["X"]) + table({"L": len(i["X"]), "d": len(i["X"][0])}, n),
    "matmul_shape": ffn_matmul,
    "ffn_pre": ffn("pre"),
    "ffn_hidden": ffn("hidden"),
    "ffn_units_on": ffn("counts"),
    "ffn": ffn("output"),
    "ffn_sublayer": lambda i, n: exercise(
        "ffn-sublayer", *(np.array(i[key], dtype=float) for key in ("X", "W1", "b1", "W2", "b2"))
    ),
    "ffn_alone_equals_together": lambda i, n: labs.run("ffn", {"X": i["X"]})["same_alone"],
    "ffn_weight_share": lambda i, n: labs.run("swiglu", i)["weights"]["share"],
    "relu": lambda i, n: labs.run("ffn", {})["hidden"][0] if labs.run("ffn", {})["pre"][0] == i["x"] else None,
    "mean_std": mean_std,
    "layer_norm": layer_norm,
    "layer_norm_columns": columns,
    "layer_norm_size": lambda i, n: labs.run("stack", {"rule": "post", "n": 1})["size"],
    "scalar_power": lambda i, n: labs.run("stack", i)["scalar"],
    "stack": stack_size,
    "pre_norm_step": sublayer_step("pre"),
    "post_norm_step": sublayer_step("post"),
    "count_norms_pre": count_norms,
    "norms_on_path": norms_on_path,
    "explorer": explorer,
    "decoder": decoder,
    "decoder_trace": decoder_trace,
    "rms_parts": lambda i, n: [labs.run("norms", i)["rms_norm"][key] for key in ("mean_square", "rms")],
    "rms_norm": rms_norm,
    "rope_angle": lambda i, n: labs.run("rope", {"m": i["pos"], "theta": i["theta"]})["pairs"][0]["q_angle"],
    "rope_rotate": rotated,
    "rope_score": rope_score,
    "rope_thetas": lambda i, n: [pair["speed"] for pair in labs.run("rope", i)["pairs"]],
    "rope_demo": rope_demo,
    "silu": lambda i, n: labs.run("swiglu", {"g": i["z"]})["silu"],
    "swiglu_unit": lambda i, n: [labs.run("swiglu", i)[key] for key in ("silu", "output")],
    "swiglu": swiglu,
    "swiglu_ratio": lambda i, n: labs.run("swiglu", {})["weights"]["ratio"],
    "masked_scores": masked,
}


def test_the_page_default_of_the_stack_vanishes() -> None:
    """The page's own number hangs on unstated random numbers; its verdict does not."""
    for seed in range(50):
        assert labs.run("stack", {"rule": "f", "gain": 0.5, "n": 30, "seed": seed})["verdict"] == "vanished"


def test_no_operation_is_listed_twice_or_unknown() -> None:
    assert {case["op"] for case in CASES} == set(SHOWN) | set(ELSEWHERE)
