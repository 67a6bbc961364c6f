"""Every exercise: the right answer passes, each known wrong one gets its own message, hidden cases tell them apart."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from cutaway.errors import InputError
from cutaway.lab.exercises import IDS, load
from cutaway.lab.exercises.exercise import Exercise, Mistake, swap
from cutaway.lab.exercises.judge import judge
from cutaway.lab.worker import decode, encode, observe
from cutaway.reference import attention, feedforward, loss, norms, positions
from cutaway.reference.masks import causal

MISTAKES = [(load(name), mistake) for name in IDS for mistake in load(name).mistakes]
#: The wrong answers that each exercise must know: what the course promises to catch.
PROMISED = {
    "layer-norm": {"first axis", "whole array", "no keepdims", "variance", "n - 1", "no eps"},
    "ffn-sublayer": {"no residual", "no ReLU", "ReLU after W2", "b2 left out", "residual before ReLU"},
    "decoder": {
        "post-norm", "norm on the sum", "no mask", "same input for both", "final norm in every block", "no final norm",
    },
    "rms-norm": {"mean subtracted", "first axis", "no keepdims", "sum for mean", "no eps"},
    "rotate": {"clockwise", "degrees", "x overwritten"},
    "swiglu": {"SiLU on the value", "matrix product", "sigmoid for SiLU", "two axes only"},
    "positional-encoding": {"sine and cosine swapped", "exponent k", "two halves", "counting from 1"},
    "attention": {"not scaled", "divided by d", "softmax over the queries", "overflow"},
    "causal-mask": {"zero for minus infinity", "the past hidden", "itself hidden", "mask after softmax"},
    "multi-head": {"heads cut from the rows", "scaled by the whole width", "joined without swapping", "no W_o"},
    "cross-attention": {"the wrong side asks", "values from the target", "self-attention", "causal mask"},
    "kv-cache": {"cache never grows", "cache forgotten", "queries cached", "newest first"},
    "cross-entropy": {"sum for mean", "gradient not divided", "gradient's sign", "nothing subtracted", "overflow"},
    "modern-block": {"values turned", "nothing turned", "no residual", "one norm for both", "gate and value swapped"},
    "gpt": {"no positions", "positions by id", "no final norm", "no residual", "probabilities"},
    "gpt-rope": {"positions still added", "nothing turned", "values turned", "turned before the heads", "halves"},
}  # fmt: skip


def tried(exercise: Exercise, code: str) -> Any:
    with np.errstate(all="ignore"):
        return judge(exercise, observe(code, exercise.plan()))


@pytest.mark.parametrize("name", IDS)
def test_the_solution_passes_and_the_starter_does_not(name: str) -> None:
    exercise = load(name)
    assert exercise.id == name
    right, begun = tried(exercise, exercise.solution), tried(exercise, exercise.starter)
    assert right.passed, right.messages
    assert right.right == right.cases == len(exercise.cases)
    assert not begun.passed
    assert exercise.function in exercise.signature
    assert f"def {exercise.function}(" in exercise.starter
    assert len(exercise.hints) >= 2
    assert exercise.starter != exercise.solution


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES, ids=[f"{e.id}: {m.name}" for e, m in MISTAKES])
def test_a_known_wrong_answer_gets_its_message(exercise: Exercise, mistake: Mistake) -> None:
    report = tried(exercise, mistake.code)
    assert not report.passed
    assert report.messages[0] == mistake.message
    assert report.right < report.cases


def test_every_exercise_knows_the_wrong_answers_that_it_must_catch() -> None:
    assert set(PROMISED) == set(IDS)
    assert len(IDS) >= 15
    for name, promised in PROMISED.items():
        known = {mistake.name for mistake in load(name).mistakes}
        assert promised <= known, f"{name}: {promised - known}"
        assert len(known) == len(load(name).mistakes) >= 4
        assert len({mistake.message for mistake in load(name).mistakes}) == len(known)


def test_the_solutions_agree_with_the_reference() -> None:
    """Each hidden case's right result is the reference's, not only the solution's."""
    for name, oracle in ORACLES.items():
        exercise = load(name)
        outcomes = observe(exercise.solution, exercise.plan())["cases"]
        for case, outcome in zip(exercise.cases, outcomes, strict=True):
            value, expected = decode(outcome["value"]), oracle(*case.args)
            for one, other in zip(*(v if isinstance(v, tuple) else (v,) for v in (value, expected)), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-9, err_msg=f"{name}: {case.name}")


def _multi_head(x: np.ndarray, q: Any, k: Any, v: Any, o: Any, n: int) -> np.ndarray:
    weights = {f"{key}_proj.weight": w.T for key, w in zip("qkvo", (q, k, v, o), strict=True)}
    return attention.multi_head(x[None], weights, attention.Heads(n))[0]


def _cached(xs: np.ndarray, q: Any, k: Any, v: Any) -> tuple:
    place = np.arange(len(xs))
    return attention.attend(xs @ q, xs @ k, xs @ v, causal(place[:, None], place))[0], xs @ k, xs @ v


def _modern(x: np.ndarray, w: dict) -> np.ndarray:
    place, width = np.arange(len(x)), x.shape[1]
    angles = place[:, None] * positions.rope_frequencies(width)
    h = norms.rms_norm(x, eps=1e-6)
    q, k = positions.rotate(h @ w["q"], angles), positions.rotate(h @ w["k"], angles)
    x = x + attention.attend(q, k, h @ w["v"], causal(place[:, None], place))[0] @ w["o"]
    return x + _gated(norms.rms_norm(x, eps=1e-6), w["gate"], w["up"], w["down"])


def _gated(x: np.ndarray, gate: Any, up: Any, down: Any) -> np.ndarray:
    return feedforward.gated(x, {"gate_proj.weight": gate.T, "up_proj.weight": up.T, "down_proj.weight": down.T})


def _gpt(rope: bool) -> Any:
    def model(ids: list[int], w: dict) -> np.ndarray:
        x = w["tokens"][ids] + (0 if rope else w["positions"][: len(ids)])
        place = np.arange(len(ids))

        def turn(y: np.ndarray) -> np.ndarray:
            return positions.rotate(y, place[:, None] * positions.rope_frequencies(y.shape[-1])) if rope else y

        heads = attention.Heads(2, turn=turn)
        for b in w["blocks"]:
            weights = {f"{key}_proj.weight": b[key].T for key in "qkvo"}
            h = norms.rms_norm(x, eps=1e-6)[None]
            x = x + attention.multi_head(h, weights, heads, causal(place[:, None], place))[0]
            dense = {"up_proj.weight": b["up"].T, "down_proj.weight": b["down"].T}
            x = x + feedforward.dense(norms.rms_norm(x, eps=1e-6), dense)
        return norms.rms_norm(x, eps=1e-6) @ w["tokens"].T

    return model


ORACLES: dict[str, Any] = {
    "layer-norm": lambda x: norms.layer_norm(x, eps=1e-5),
    "rms-norm": lambda x: norms.rms_norm(x, eps=1e-6),
    "rotate": lambda v, pos, theta: positions.rotate(v, np.array([pos * theta])),
    "swiglu": _gated,
    "ffn-sublayer": lambda x, w1, b1, w2, b2: (
        x
        + feedforward.dense(
            x, {"up_proj.weight": w1.T, "up_proj.bias": b1, "down_proj.weight": w2.T, "down_proj.bias": b2}
        )
    ),
    "positional-encoding": lambda length, d: positions.sinusoidal(np.arange(length), d),
    "attention": lambda q, k, v: attention.attend(q, k, v)[0],
    "causal-mask": lambda s: attention.pattern(s, causal(np.arange(s.shape[-1])[:, None], np.arange(s.shape[-1]))),
    "multi-head": _multi_head,
    "cross-attention": lambda x, m, q, k, v: attention.attend(x @ q, m @ k, m @ v)[0],
    "kv-cache": _cached,
    "cross-entropy": lambda logits, targets: (
        loss.cross_entropy(logits, targets),
        loss.cross_entropy_gradient(logits, targets),
    ),
    "modern-block": _modern,
    "gpt": _gpt(rope=False),
    "gpt-rope": _gpt(rope=True),
}

# Answers that are right in another way, and wrong ones that nobody foresaw.


OTHER_FORMS = [
    (
        "layer-norm",
        """
def layer_norm(x, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + eps)
""",
    ),
    (
        "layer-norm",
        """
def layer_norm(x, eps=1e-5):
    x -= x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
""",
    ),
    (
        "rms-norm",
        """
def rms_norm(x, eps=1e-6):
    return x / (np.sqrt((x ** 2).mean(-1, keepdims=True)) + eps)
""",
    ),
    (
        "rotate",
        """
import math
def rotate(v, pos, theta):
    c, s = math.cos(pos * theta), math.sin(pos * theta)
    return [v[0] * c - v[1] * s, v[0] * s + v[1] * c]
""",
    ),
    (
        "rotate",
        """
def rotate(v, pos, theta):
    z = complex(*v) * np.exp(1j * pos * theta)
    return z.real, z.imag
""",
    ),
]


@pytest.mark.parametrize(("name", "code"), OTHER_FORMS)
def test_a_right_answer_of_another_form_passes(name: str, code: str) -> None:
    assert tried(load(name), code).passed


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def layer_norm(x, eps=1e-5)\n    return x", "Line 1: .*SyntaxError"),
        ("def other(x):\n    return x", "no function layer_norm"),
        ("layer_norm = 3", "no function layer_norm"),
        ("def layer_norm(x, eps=1e-5):\n    pass", "None. End the function with return"),
        ("def layer_norm(x, eps=1e-5):\n    return x.mean(-1)", r"shape \(2,\); the shape \(2, 4\) was expected"),
        ("def layer_norm(x, eps=1e-5):\n    return x * np.nan", "nan at"),
        ("def layer_norm(x, eps=1e-5):\n    return 'words'", "not an array of numbers"),
        ("def layer_norm(x, eps=1e-5):\n    return {1, 2}", "not an array of numbers"),
        ("def layer_norm(x, eps=1e-5):\n    return [[1], [2, 3]]", "not an array of numbers"),
        ("def layer_norm(x, eps=1e-5):\n    y = x + 1\n    return y.meen()", "Line 3: AttributeError"),
        ("def layer_norm(x, eps=1e-5):\n    return x @ x", "Line 2: ValueError"),
        ("def layer_norm(x):\n    return layer_norm(x)", "RecursionError"),
        ("def layer_norm(x, eps=1e-5):\n    exit()", "SystemExit"),
        ("1 / 0", "Line 1: the program stops before layer_norm is called: ZeroDivisionError"),
    ],
)
def test_an_unforeseen_wrong_answer_is_told_what_and_where(code: str, said: str) -> None:
    report = tried(load("layer-norm"), code)
    assert not report.passed
    assert re.search(said, report.messages[0]), report.messages


def test_a_function_of_two_results_is_told_which_one_is_wrong() -> None:
    exercise = load("cross-entropy")
    half = swap(exercise.solution, ("gradient / len(targets)", "gradient * 7"))
    assert tried(exercise, half).messages[0].startswith("The second result is")
    one = swap(exercise.solution, ("return loss, gradient / len(targets)", "return loss"))
    assert "returns 2 things" in tried(exercise, one).messages[0]


def test_the_decoder_is_judged_by_its_residual_too() -> None:
    """With two numbers a word the returned value alone says almost nothing."""
    exercise = load("decoder")
    blind = exercise.solution + "\n\ndef layer_norm(x, eps=1e-5):\n    return np.sign(x - x.mean(-1, keepdims=True))\n"
    own = swap(
        exercise.solution,
        (
            "    return layer_norm(x)\n",
            "    h = x - x.mean(-1, keepdims=True)\n    return h / np.sqrt((h**2).mean(-1, keepdims=True) + 1e-5)\n",
        ),
    )
    assert not tried(exercise, blind).passed
    report = tried(exercise, own)
    assert not report.passed, "the final norm must be the given one, whose input is looked at"
    assert "given" in report.messages[0] or "LayerNorm" in report.messages[0]


def test_values_survive_the_way_to_the_process_and_back() -> None:
    value = {"a": (np.arange(6.0).reshape(2, 3), [1, None, True]), "b": {"c": np.array([1, 2])}, "d": np.float64(0.5)}
    back = decode(encode(value))
    np.testing.assert_array_equal(back["a"][0], value["a"][0])
    assert back["a"][1] == [1, None, True]
    assert back["b"]["c"].dtype == np.int64
    assert decode(encode(np.zeros((0, 3)))).shape == (0, 3)
    assert encode(np.zeros(30_000)) == {"other": "array of float64, shape (30000,)"}
    assert encode(object()) == {"other": "object"}


def test_an_unknown_exercise_is_refused() -> None:
    with pytest.raises(InputError, match="layer-norm"):
        load("layernorm")


def test_a_mistake_whose_difference_is_gone_is_noticed() -> None:
    with pytest.raises(ValueError, match="is not in the program"):
        swap("a = 1", ("b", "c"))
