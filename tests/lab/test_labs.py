"""What every lab promises, and the properties that its numbers must have."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.lab import labs
from cutaway.lab.labs import show

OWN = ("order", "pe", "ffn", "layernorm", "stack", "block", "residual-path", "norms", "rope", "swiglu", "mask")
FEW = settings(max_examples=30, deadline=None)
numbers4 = st.lists(st.floats(-50, 50).map(lambda x: round(x, 3)), min_size=4, max_size=4)


@pytest.mark.parametrize("lab", labs.IDS)
def test_a_lab_gives_plain_json_a_sentence_and_printed_numbers(lab: str) -> None:
    result = labs.run(lab, {})
    text = json.dumps(result, allow_nan=False)
    assert json.loads(text) == result, "a result is plain: lists, numbers, text"
    assert result["text"].endswith((".", "!", "?"))
    assert result["numbers"]
    assert all(isinstance(number, str) for number in result["numbers"].values())
    assert not re.search(r"-0(\.0+)?(?![\d.])", " ".join(result["numbers"].values())), "minus zero is never shown"
    assert "-0.0," not in text.replace("-0.0, ", "-0.0,")


@pytest.mark.parametrize("lab", labs.IDS)
def test_a_lab_is_a_pure_function_of_its_state(lab: str) -> None:
    state = labs.default(lab)
    before = json.dumps(state)
    assert labs.run(lab, state) == labs.run(lab, {})
    assert json.dumps(state) == before
    assert labs.default(lab) is not labs.default(lab)


@pytest.mark.parametrize("lab", labs.IDS)
def test_an_unknown_key_and_a_bad_value_are_refused_by_name(lab: str) -> None:
    with pytest.raises(InputError, match="nonsense"):
        labs.run(lab, {"nonsense": 1})
    for key in labs.default(lab):
        with pytest.raises(InputError, match=key):
            labs.run(lab, {key: {"not": "this"}})


def test_an_unknown_lab_is_refused() -> None:
    with pytest.raises(InputError, match="rope"):
        labs.run("ropes", {})


@pytest.mark.parametrize(
    ("lab", "state", "said"),
    [
        ("rope", {"m": 1.5}, "m is 1.5; it must be a whole number from 0 to 10000"),
        ("rope", {"m": True}, "m is True"),
        ("rope", {"d_k": 3}, "a multiple of 2"),
        ("rope", {"q": [1, 2, 3]}, "2 numbers from -100 to 100"),
        ("swiglu", {"g": float("nan")}, "a number from -6 to 6"),
        ("swiglu", {"g": float("inf")}, "a number from -6 to 6"),
        ("norms", {"x": [1, 2, 3, float("nan")]}, "4 numbers"),
        ("norms", {"x": [1, 2, 3, 10**400]}, "4 numbers"),
        ("norms", {"x": [1, 2, 3, "4"]}, "4 numbers"),
        ("stack", {"rule": "sideways"}, "one of f, res, post, pre"),
        ("stack", {"n": 0}, "from 1 to 30"),
        ("pe", {"row": 16}, "from 0 to 15"),
        ("pe", {"d": 512, "L": 16}, "at most 8 with d 512"),
        ("ffn", {"follow": "cow"}, "cat, dog, car"),
        ("ffn", {"X": [[5, 0], [1, 1], [0, 2]]}, "from -4 to 4"),
        ("order", {"watch": "cow"}, "a word of both orders"),
        ("order", {"orders": [["cat"] * 9, ["cat"]]}, "1 to 8 words"),
        ("order", {"vectors": {"cat": [1]}}, "cat"),
        ("block", {"heads": 3}, "1, 2, 4, 8, which share d_model 8"),
        ("block", {"design": "modern", "heads": 8}, "1, 2, 4, which"),
        ("block", {"remove": ["gate"]}, "a list of some of"),
        ("block", {"remove": "attn"}, "a list of some of"),
        ("block", {"part": "cross"}, "one of"),
    ],
)
def test_an_illegal_value_is_answered_with_what_is_legal(lab: str, state: dict, said: str) -> None:
    with pytest.raises(InputError) as refused:
        labs.run(lab, state)
    assert f"lab {lab}: " in str(refused.value)
    assert said in str(refused.value)


def test_how_numbers_are_written() -> None:
    assert show.fixed(-0.001) == "0.00"
    assert show.vector([1.7225, -0.0]) == "[1.72, 0.00]"
    assert show.short_vector([4, -2.5, -0.00001]) == "[4, -2.5, 0]"
    assert [show.size(x) for x in (1.8e-8, 2.8284, 21337.7, 0.0, 999.4)] == [
        "1.8e-8",
        "2.83",
        "2.1e4",
        "0.00",
        "999.40",
    ]


# order


@FEW
@given(st.permutations(["cat", "dog", "car", "sun", "sky"]))
def test_without_positions_or_mask_a_permutation_permutes_the_outputs(words: list[str]) -> None:
    first = ["cat", "dog", "car", "sun", "sky"]
    result = labs.run("order", {"orders": [first, words]})
    one, two = (np.array(order["outputs"]) for order in result["orders"])
    np.testing.assert_allclose(two, one[[first.index(word) for word in words]], atol=1e-12)
    assert result["equal"]


def test_a_causal_mask_lets_order_leak() -> None:
    result = labs.run("order", {"causal": True})
    assert result["orders"][0]["output"] == [2, 0]
    np.testing.assert_allclose(result["orders"][1]["output"], [1.7225, 0.2775], atol=5e-5)
    assert not result["equal"]


def test_counting_drowns_the_word_and_sines_do_not() -> None:
    counted, waved = (labs.run("order", {"pe": True, "signal": s, "start": 500}) for s in ("counting", "sines"))
    assert np.abs(counted["orders"][0]["signal"]).max() >= 500
    assert np.abs(waved["orders"][0]["signal"]).max() <= 1


def test_a_word_of_the_learner_gets_the_same_numbers_every_time() -> None:
    state = {"orders": [["zebra", "cat"], ["cat", "zebra"]], "watch": "zebra"}
    a, b = labs.run("order", state)["orders"]
    assert a["vectors"][0] == b["vectors"][1]
    assert labs.run("order", state | {"vectors": {"zebra": [3, 4]}})["orders"][0]["vectors"][0] == [3, 4]


def test_two_lists_of_different_words_are_called_so() -> None:
    result = labs.run("order", {"orders": [["cat", "dog"], ["cat", "car"]]})
    assert not result["same_words"]
    assert "different words" in result["text"]


# pe


@FEW
@given(st.integers(1, 32).map(lambda pairs: 2 * pairs), st.integers(0, 30))
def test_the_position_table_is_bounded_distinct_and_turns(d: int, row: int) -> None:
    result = labs.run("pe", {"L": 32, "d": d, "row": row})
    table = np.array(result["table"])
    assert np.abs(table).max() <= 1
    assert len(np.unique(table.round(12), axis=0)) == 32
    turned = np.einsum("pij,pj->pi", np.array(result["rotation"]), table[row].reshape(-1, 2)).ravel()
    np.testing.assert_allclose(turned, table[row + 1], atol=1e-12)


# ffn


@FEW
@given(st.lists(st.lists(st.floats(-4, 4), min_size=2, max_size=2), min_size=3, max_size=3))
def test_a_word_in_the_feed_forward_network_is_the_same_alone(x: list[list[float]]) -> None:
    result = labs.run("ffn", {"X": x})
    assert result["same_alone"]
    others = labs.run("ffn", {"X": [x[0], [4.0, -4.0], [-4.0, 4.0]]})
    assert others["output"][0] == result["output"][0]
    assert result["on"] == [[value > 0 for value in row] for row in result["pre"]]


def test_each_units_line_is_where_it_switches() -> None:
    result = labs.run("ffn", {})
    for line in result["lines"]:
        for x, y in line["segment"]:
            assert abs(line["weights"][0] * x + line["weights"][1] * y + line["bias"]) < 1e-12
            assert max(abs(x), abs(y)) == 4


# layernorm and norms


@FEW
@given(numbers4)
def test_the_norms_do_what_they_claim(x: list[float]) -> None:
    result = labs.run("norms", {"x": x})
    if not result["flat"] and np.std(x) > 1e-3:
        assert abs(result["mean_out"]) < 1e-9
        assert math.isclose(np.linalg.norm(result["layer_norm"]["out"]), 2, rel_tol=1e-9)
        moved = labs.run("norms", {"x": [value + 7 for value in x]})
        np.testing.assert_allclose(moved["layer_norm"]["out"], result["layer_norm"]["out"], atol=1e-7)
    if max(map(abs, x)) > 1e-3:
        assert math.isclose(result["mean_square_out"], 1, rel_tol=1e-9)
        assert result["signs_kept"]["rms_norm"]
        scaled = labs.run("norms", {"x": [value * 3 for value in x]})
        np.testing.assert_allclose(scaled["rms_norm"]["out"], result["rms_norm"]["out"], atol=1e-12)


@pytest.mark.parametrize("x", [[0, 0, 0, 0], [7, 7, 7, 7], [0.1, 0.1, 0.1, 0.1], [-1e6] * 4])
def test_equal_numbers_give_zeros_and_say_so(x: list[float]) -> None:
    word = labs.run("layernorm", {"word": x})
    assert word["flat"]
    assert word["out"] == [0, 0, 0, 0]
    assert "equal" in word["text"]
    norms = labs.run("norms", {"x": x})
    assert norms["layer_norm"]["out"] == [0, 0, 0, 0]
    assert norms["flat"]


def test_in_column_mode_an_edit_moves_the_other_words() -> None:
    table = [[1, 2, 3, 6], [10, 10, 12, 8], [9, 0, 1, 0]]
    before, after = ({"axis": "column"}, {"axis": "column", "table": table})
    moved = labs.run("layernorm", after)
    assert labs.run("layernorm", before)["others_move"]
    assert moved["table_out"][0][0] == pytest.approx(-1.4069, abs=1e-4)
    assert moved["table_out"][1][0] == pytest.approx(0.8276, abs=1e-4)
    still = labs.run("layernorm", {"table": table})
    assert not still["others_move"]
    assert still["moves"] == [[True, False, False], [False, True, False], [False, False, True]]
    assert still["table_out"][:2] == labs.run("layernorm", {})["table_out"][:2]


def test_gain_and_shift_act_on_the_normalised_numbers() -> None:
    plain = np.array(labs.run("layernorm", {})["out"])
    result = labs.run("layernorm", {"gain": [1, 2, 3, 4], "shift": [1, 1, 0, 0]})
    np.testing.assert_allclose(result["out"], plain * [1, 2, 3, 4] + [1, 1, 0, 0])


# stack and residual-path


def _walk(rule: str, x: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """The four rules once more, written apart from the lab."""

    def norm(v: np.ndarray) -> np.ndarray:
        return (v - v.mean()) / v.std()

    for w in matrices:
        if rule == "pre":
            x = x + w @ norm(x)
        else:
            added = w @ x + (rule != "f") * x
            x = norm(added) if rule == "post" else added
    return x


@pytest.mark.parametrize("rule", ["f", "res", "post", "pre"])
@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_the_stacks_gradient_is_that_of_finite_differences(rule: str, gain: float) -> None:
    from cutaway.lab.labs.rules import draw

    n = 12
    x, matrices = draw(3, n)
    jacobian = np.empty((8, 8))
    for j in range(8):
        step = 1e-6 * np.eye(8)[j]
        jacobian[:, j] = (_walk(rule, x + step, gain * matrices) - _walk(rule, x - step, gain * matrices)) / 2e-6
    result = labs.run("stack", {"rule": rule, "gain": gain, "n": n, "seed": 3})
    expected = math.sqrt((jacobian**2).sum() / 8)
    assert result["gradients"][0] == pytest.approx(expected, rel=1e-4)
    assert result["gradients"][-1] == pytest.approx(1)
    np.testing.assert_allclose(result["final"], _walk(rule, x, gain * matrices), rtol=1e-9)


@FEW
@given(st.integers(0, 9999), st.floats(0.5, 2.0), st.integers(1, 30))
def test_post_norm_keeps_one_length_at_every_depth(seed: int, gain: float, n: int) -> None:
    sizes = labs.run("stack", {"rule": "post", "gain": gain, "n": n, "seed": seed})["sizes"]
    np.testing.assert_allclose(sizes[1:], math.sqrt(8), rtol=1e-9)


def test_a_size_beyond_the_axis_is_marked() -> None:
    result = labs.run("stack", {"rule": "res", "gain": 2.0})
    assert result["outside"][-1]
    assert result["sizes"][-1] > result["axis"][1]
    assert result["verdict"] == "large"
    assert not any(labs.run("stack", {"rule": "post"})["outside"])


@pytest.mark.parametrize("design", ["post", "pre"])
def test_the_residual_paths_gradient_is_that_of_finite_differences(design: str) -> None:
    from cutaway.lab.labs.rules import draw

    x, matrices = draw(5, 6)

    def whole(v: np.ndarray) -> np.ndarray:
        y = _walk(design, v, matrices)
        return y if design == "post" else (y - y.mean()) / y.std()

    jacobian = np.stack([(whole(x + s) - whole(x - s)) / 2e-6 for s in 1e-6 * np.eye(8)], -1)
    result = labs.run("residual-path", {"design": design, "layers": 6, "seed": 5})
    assert result["gradients"][design][0] == pytest.approx(math.sqrt((jacobian**2).sum() / 8), rel=1e-4)


def test_the_norms_on_the_path_are_counted_in_both_ways() -> None:
    post = labs.run("residual-path", {"layers": 12})
    pre = labs.run("residual-path", {"layers": 12, "design": "pre"})
    for result in (post, pre):
        on_path = [node["layer"] for node in result["nodes"] if node["kind"] == "norm" and node["on_path"]]
        assert len([layer for layer in on_path if layer]) == result["in_layers"]
        assert on_path.count(0) == result["at_end"]
    assert (post["in_layers"], post["at_end"], post["in_blocks"]) == (12, 0, 24)
    assert (pre["in_layers"], pre["at_end"]) == (0, 1)
    assert "24" in post["text"]
    assert post["direct"]["post"] < pre["direct"]["pre"]


# rope


@FEW
@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 8).map(lambda p: 2 * p), st.integers(0, 5000))
def test_a_joint_shift_leaves_the_score(m: int, n: int, d_k: int, shift: int) -> None:
    here = labs.run("rope", {"m": m, "n": n, "d_k": d_k})
    there = labs.run("rope", {"m": m + shift, "n": n + shift, "d_k": d_k})
    assert here["score"] == pytest.approx(there["score"], abs=1e-9)
    assert here["score"] == pytest.approx(sum(pair["score"] for pair in here["pairs"]), abs=1e-12)
    assert here["lengths"]["q"] == pytest.approx(here["lengths"]["q_after"])
    assert here["score_float32"] == pytest.approx(here["score"], abs=0.02)


@FEW
@given(st.integers(0, 20), st.integers(0, 20))
def test_a_single_pairs_score_is_the_sine_of_half_the_distance(m: int, n: int) -> None:
    result = labs.run("rope", {"m": m, "n": n})
    assert result["score"] == pytest.approx(math.sin((m - n) / 2), abs=1e-12)
    assert result["unit"]
    assert result["score"] == pytest.approx(math.cos(result["pairs"][0]["arc"]), abs=1e-12)


# swiglu and mask


@FEW
@given(st.integers(1, 4000), st.integers(1, 4000).map(lambda k: 3 * k))
def test_two_thirds_of_the_width_is_the_same_number_of_weights(d_model: int, d_ff: int) -> None:
    weights = labs.run("swiglu", {"d_model": d_model, "d_ff": d_ff})["weights"]
    assert weights["difference"] == 0
    assert weights["gated"] == weights["plain"]


def test_the_rounding_of_the_gated_width_is_shown() -> None:
    near = labs.run("swiglu", {})
    wide = labs.run("swiglu", {"multiple": 128})
    assert near["numbers"]["width_exact"] == "1365.33"
    assert (near["weights"]["width"], wide["weights"]["width"]) == (1365, 1408)
    assert wide["weights"]["difference"] == 3 * 512 * 1408 - 2 * 512 * 2048


@FEW
@given(st.lists(st.lists(st.floats(-30, 30), min_size=4, max_size=4), min_size=4, max_size=4))
def test_the_mask_gives_the_future_exactly_nothing(scores: list[list[float]]) -> None:
    result = labs.run("mask", {"scores": scores})
    assert result["future"] == [0, 0, 0, 0]
    assert all(w == 0 for i, row in enumerate(result["weights"]) for w in row[i + 1 :])
    np.testing.assert_allclose(result["row_sums"], 1)
    changed = [row[:] for row in scores]
    changed[0][3] += 5
    assert labs.run("mask", {"scores": changed})["weights"] == result["weights"]


def test_the_default_scores_are_the_pages() -> None:
    expected: Any = np.random.RandomState(1).randn(4, 4)
    assert labs.default("mask")["scores"] == expected.tolist()
