"""Every stored answer is computed anew from the reference or a lab, and so are the listed mistakes with a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutaway.lab import course
from cutaway.lab.labs import ffn as ffn_lab
from cutaway.lab.labs import kv_cache, run, toy_gpt
from cutaway.reference import attention, block, functions, loss, masks, norms, positions, residual, sampling

QUESTIONS = course._texts("en").questions
CAT = np.array([2.0, 0.0])
WORD = np.array([1.0, 1.0, 5.0, 5.0])
X = np.array([1.0, 1.0, 3.0, 5.0])
RNG = np.random.default_rng(0)


def order(words: list[str]) -> list[float]:
    return run("order", {"orders": [words, words]})["orders"][0]["output"]


def pe(pos: int, column: int) -> float:
    return float(positions.sinusoidal(pos, 2)[column])


def cat_units(bias: Any = ffn_lab.B1) -> np.ndarray:
    return CAT @ ffn_lab.W1 + bias


def turned(m: float, n: float, theta: float = 0.5) -> float:
    return float(positions.rotate([1.0, 0.0], [m * theta]) @ positions.rotate([0.0, 1.0], [n * theta]))


def weight_count(d_model: int, d_ff: int, matrices: int) -> int:
    return 4 * d_model**2 + matrices * d_model * d_ff


def products(tokens: int) -> int:
    return sum(kv_cache._work(tokens, True)["dots"])


def tiny_step(parts: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return block.block([[3.0, 1.0]], block.pre_norm([parts], norms.layer_norm))[0]


def in_tree(beams: int) -> float:
    tree = run("sampling", {"beams": beams})["tree"]
    return next(path["probability"] for path in tree["paths"] if path["words"] == tree["found"])


A = attention.attend([[0.0]], [[0.0], [math.log(3)]], [[4.0, 0.0], [0.0, 8.0]])
MASKED = attention.pattern([2.0, 2.0, 7.0, 7.0], masks.causal(1, np.arange(4)))
QUARTER = loss.cross_entropy(np.log([[0.25, 0.75]]), [0])
# What a right answer is computed from.
ANSWERS: dict[str, Callable[[], Any]] = {
    "embeddings.1": lambda: np.zeros((1000, 64))[np.zeros((2, 5), int)].shape,
    "embeddings.3": lambda: np.dot([3, 4], [4, 3]) / np.linalg.norm([3, 4]) / np.linalg.norm([4, 3]),
    "embeddings.4": lambda: (
        run("embeddings", {"vocab_size": 50000, "d_model": 800, "tied": False})["cost"]["parameters"] / 1e6
    ),
    "attention.1": lambda: np.dot([1, 2, 0, 1], [2, 1, 5, 0]) / math.sqrt(4),
    "attention.2": lambda: functions.softmax([0.0, math.log(3)])[1],
    "attention.4": lambda: attention.attend(np.zeros((5, 64)), np.zeros((7, 64)), np.zeros((7, 64)))[1].shape,
    "attention.5": lambda: (np.array([0.25, 0.75]) @ [[4.0, 0.0], [0.0, 8.0]])[1],
    "heads.2": lambda: MASKED[0],
    "heads.3": lambda: attention.split_heads(np.zeros((1, 1, 768)), 12).shape[-1],
    "heads.4": lambda: run("heads", {"n_heads": 8, "head": 0})["parameters"],
    "16.2": lambda: pe(0, 1),
    "16.3": lambda: positions.sinusoidal(np.arange(10), 8).shape,
    "16.4": lambda: run("pe", {"d": 64})["worked"]["root"],
    "16.5": lambda: (np.zeros((3, 2)) @ ffn_lab.W1 + ffn_lab.B1).shape,
    "16.6": lambda: (cat_units() > 0).sum(),
    "16.9": lambda: norms.layer_norm(WORD)[3],
    "16.10": lambda: np.zeros((2, 5, 8)).mean(-1).size,
    "16.12": lambda: sum(len(block.pre_norm([functions.identity] * 2, norms.layer_norm)) for _ in range(3)) + 1,
    "whole-model.1": lambda: functions.linear(np.zeros((1, 5, 44)), np.zeros((12, 44))).shape,
    "whole-model.3": lambda: QUARTER,
    "generation.2": lambda: sampling.distribution([2.0, 0.0], sampling.Sampling(temperature=2))[0],
    "generation.3": lambda: (
        sampling.distribution(np.log([0.4, 0.3, 0.2, 0.1]), sampling.Sampling(top_p=0.75)) > 0
    ).sum(),
    "generation.4": lambda: in_tree(2),
    "19.2": lambda: sum(residual.norms_on_path("post", 12)),
    "19.3": lambda: np.sqrt((X**2).mean()),
    "19.4": lambda: norms.rms_norm(X)[3],
    "19.5": lambda: run("rope", {"m": 2})["pairs"][0]["q_angle"],
    "19.7": lambda: turned(2, 0),
    "19.8": lambda: functions.silu(1.0),
    "19.9": lambda: 2 / 3,
    "inference.1": lambda: products(5),
    "inference.2": lambda: kv_cache.Model(10, 8, 2, 64, 512, 2048, 1000, True).cache_numbers() * 2,
    "inference.3": lambda: 100 / 10,
    "small-gpt.1": lambda: weight_count(16, 64, 2),
    "small-gpt.3": lambda: loss.cross_entropy(np.zeros((1, 19)), [0]),
    "depth.1": lambda: round(math.log(1e-6) / math.log(0.1)),
    "depth.2": lambda: functions.sigmoid(0.0) * (1 - functions.sigmoid(0.0)),
    "depth.3": lambda: (1 + 0.5) * (1 + 0.2),
    "encoder-decoder.2": lambda: attention.attend(np.zeros((3, 4)), np.zeros((7, 4)), np.zeros((7, 4)))[1].shape,
    "encoder-decoder.3": lambda: 4 * 512**2,
}


def choose(options: dict[str, bool]) -> str:
    """The one option that the mathematics bears out."""
    (true,) = [option for option, holds in options.items() if holds]
    return true


def alone_or_together() -> str:
    seen = run("ffn", {})
    return choose({"identical": seen["same_alone"], "different": not seen["same_alone"], "scaled": False})


def stacked() -> str:
    verdict = run("stack", {"rule": "f", "gain": 0.5, "n": 30})["verdict"]
    return choose({"vanish": verdict == "vanished", "same": verdict == "stable", "explode": verdict == "large"})


def shifted() -> str:
    before, after = turned(2, 0), turned(12, 10)
    same = math.isclose(before, after, abs_tol=1e-12)
    return choose({"same": same, "larger": not same and after > before, "smaller": not same and after < before})


def equal_scores() -> str:
    values = RNG.normal(size=(5, 2))
    out = attention.attend([[0.0, 1.0]], [[1.0, 0.0]] * 5, values)[0][0]
    return choose(
        {"mean": np.allclose(out, values.mean(0)), "zero": not out.any(), "self": np.allclose(out, values[0])}
    )


def first_row() -> str:
    weights = attention.pattern(RNG.normal(size=(3, 3)), masks.causal(np.arange(3)[:, None], np.arange(3)))[0]
    return choose({"self": weights.tolist() == [1, 0, 0], "nothing": not weights.any(), "all": weights.all()})


def one_hot_row() -> str:
    table = RNG.normal(size=(6, 4))
    out = np.eye(6)[3] @ table
    return choose(
        {"row": (out == table[3]).all(), "column": False, "three": False, "mean": np.allclose(out, table.mean(0))}
    )


def batch_of_one() -> str:
    out = norms.column_norm([[1.0, 2.0, 3.0, 6.0]], eps=1e-5)[0]
    return choose({"zeros": not out.any(), "ones": (out == 1).all(), "same": False, "layer": False})


def without_gender() -> str:
    said = " ".join(run("encoder-decoder", {"remove": ["encoder.attn"]})["translation_without"][:-1])
    return choose(
        {
            "gender": said == "el casa rojo",
            "order": said == "la roja casa",
            "nothing": not said,
            "repeat": "roja roja" in said,
        }
    )


def without_block_0() -> str:
    whole, gone = (run("whole-model", {"remove": each})["patterns"]["blocks.1"][-1] for each in ([], ["blocks.0.attn"]))
    finds = max(gone) > 0.3
    assert max(whole) > 0.5
    return choose({"before": not finds, "nothing": finds, "grammar": False, "words": False})


def unmasked() -> str:
    seen = run("whole-model", {"remove": ["mask"]})
    falls = seen["loss"] > 0.8 and seen["loss_without"] < 0.05
    same_words = seen["continued"] == seen["continued_without"]
    return choose({"cheat": falls and same_words, "better": falls and not same_words, "overfit": False, "noise": False})


def seeds() -> str:
    one, two = (
        [toy_gpt.train(toy_gpt.Recipe(2, seed=seed, without=without)).held_out[-1] for seed in (0, 3)]
        for without in ("none", "norms")
    )
    opposite = (one[0] > two[0]) and (one[1] < two[1])
    return choose({"nothing": opposite, "harmful": not opposite and one[0] > two[0], "useless": False, "bug": False})


CHOICES: dict[str, Callable[[], str]] = {
    "16.1": lambda: choose({
        "same": np.allclose(order(["cat", "dog", "car"]), order(["car", "dog", "cat"])),
        "different": not np.allclose(order(["cat", "dog", "car"]), order(["car", "dog", "cat"])),
    }),
    "16.7": alone_or_together,
    "16.8": stacked,
    "16.11": lambda: choose({
        "unchanged": tiny_step(np.zeros_like).tolist() == [3, 1],
        "normalised": tiny_step(np.zeros_like).tolist() == [1, -1],
        "zero": not tiny_step(np.zeros_like).any(),
        "both": tiny_step(np.zeros_like).tolist() == [4, 0],
    }),
    "19.6": shifted,
    "attention.3": equal_scores,
    "heads.1": first_row,
    "embeddings.2": one_hot_row,
    "depth.4": batch_of_one,
    "encoder-decoder.1": without_gender,
    "whole-model.2": without_block_0,
    "whole-model.4": unmasked,
    "small-gpt.4": seeds,
}  # fmt: skip
# Choices about purposes and history: nothing to compute.
IN_WORDS = {
    "19.1", "19.10", "TBB.1", "TBB.2", "TBB.3", "TBB.4", "TBB.5", "generation.1", "inference.4", "small-gpt.2",
    "encoder-decoder.4",
}  # fmt: skip
# The numbers that the listed mistakes lead to, in their order.
MISTAKES: dict[str, Callable[[], list[float]]] = {
    "embeddings.3": lambda: [24, 24 / 5, 1, float(np.linalg.norm([3 - 4, 4 - 3]))],
    "attention.1": lambda: [4, 4 / 4, 4 * 2],
    "attention.2": lambda: functions.softmax([0.0, math.log(3)])[:1].tolist() + [3.0],
    "attention.5": lambda: [0.25 * 4, 0.25 * 8, 8, (0 + 8) / 2],
    "heads.2": lambda: [1 / 4, 1, 0, float(functions.softmax([2.0, 2.0, 7.0, 7.0])[0])],
    "16.2": lambda: [pe(0, 0), pe(1, 1), pe(1, 0)],
    "16.4": lambda: [64, 64**2, 64 / 2, 1 / math.sqrt(64)],
    "16.6": lambda: [(cat_units() >= 0).sum(), cat_units().size],
    "16.9": lambda: [5 - 3, 5 / 2, norms.layer_norm(WORD)[0], (5 - 3) / 4, (5 - 3) / WORD.std(ddof=1)],
    "16.10": lambda: [8, 2 * 5 * 8, 2 * 8, 5 * 8, 2, 5, 1],
    "16.12": lambda: [2 * 3, 3 + 1, 3, 3 * 3],
    "whole-model.3": lambda: [-QUARTER, 0.25, 0.75, QUARTER / math.log(2), loss.perplexity(QUARTER)],
    "generation.2": lambda: [*functions.sigmoid([2.0, 4.0]), functions.sigmoid(2.0) / 2, functions.sigmoid(-1.0)],
    "generation.4": lambda: [in_tree(1), 0.5 * 0.9, 0.4 + 0.9],
    "19.2": lambda: [12 + 1, residual.norms_on_path("pre", 12)[0], residual.norms_on_path("pre", 12)[1], 24],
    "19.3": lambda: [(X**2).mean(), math.sqrt((X**2).sum()), X.mean(), (X**2).sum(), X.std()],
    "19.4": lambda: [norms.layer_norm(X)[3], (5 - X.mean()) / 3, 5 / 9, 3 / 5],
    "19.5": lambda: [0.5, 0.5 / 2, 2 / 0.5, 3 * 0.5],
    "19.7": lambda: [0.54, turned(0, 0), 0.54 + 0.84, turned(0, 2)],
    "19.8": lambda: [functions.sigmoid(-1.0), 1 + 0.37, 0.37, functions.relu(1.0), 1 - 0.37, 1 / 0.37],
    "19.9": lambda: [3 / 2, 1 / 2, 1 / 3],
    "inference.1": lambda: [25, sum(kv_cache._work(5, False)["dots"]), 5, 10],
    "inference.2": lambda: [2 * 10 * 8 * 64 * 2, 10 * 2 * 64 * 2, 10 * 2 * 64, 5120 / 10],
    "small-gpt.1": lambda: [2 * weight_count(16, 64, 2), 4 * 16**2, 2 * 16 * 64],
    "depth.3": lambda: [0.5 * 0.2, 1 + 0.5 + 0.2, 1 + 0.5 * 0.2, 0.5 + 0.2],
}  # fmt: skip


def test_each_question_is_computed_or_said_to_be_a_matter_of_words() -> None:
    assert set(ANSWERS) | set(CHOICES) | IN_WORDS == set(QUESTIONS)
    assert len(ANSWERS) + len(CHOICES) + len(IN_WORDS) == len(QUESTIONS)


@pytest.mark.parametrize("id", ANSWERS)
def test_the_computed_answer_is_judged_right(id: str) -> None:
    computed, question = ANSWERS[id](), QUESTIONS[id]
    if question.kind == "shape":
        assert tuple(question.answer) == computed
        text = "x".join(map(str, computed))
    else:
        assert abs(question.answer - float(computed)) <= question.tolerance + 1e-12
        text = f"{float(computed):.10f}"
    assert course.check(id, text).right


@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=pytest.mark.slow) if id == "small-gpt.4" else id for id in CHOICES]
)
def test_the_choice_that_holds_is_the_answer(id: str) -> None:
    assert CHOICES[id]() == QUESTIONS[id].answer


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_leads_to_the_number_that_is_listed_for_it(id: str) -> None:
    listed = [wrong.value for wrong in QUESTIONS[id].wrong]
    computed = [float(value) for value in MISTAKES[id]()]
    assert listed[: len(computed)] == pytest.approx(computed, abs=0.0051 if QUESTIONS[id].tolerance else 1e-9)
