"""The labs of the nine further chapters: gradients against finite differences, and the properties that they show."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.lab.labs import depth, kv_cache, run, toy_gpt, toy_model, toy_translator
from cutaway.reference import block, feedforward, sampling
from cutaway.reference.attention import Heads, multi_head
from cutaway.reference.functions import softmax
from cutaway.reference.masks import causal
from cutaway.reference.norms import rms_norm

FEW = settings(max_examples=25, deadline=None)
half = st.integers(-8, 8).map(lambda n: n / 2)
pairs = st.lists(half, min_size=2, max_size=2)


@FEW
@given(st.lists(pairs, min_size=10, max_size=10), st.sampled_from(["dot", "cosine", "distance"]))
def test_embeddings_look_up_is_a_product(table: list[list[float]], measure: str) -> None:
    seen = run("embeddings", {"table": table, "measure": measure, "text": ["car", "the", "car"]})
    assert seen["same"]
    assert seen["vectors"] == [table[i] for i in seen["ids"]]
    assert seen["order"][0] == "cat"
    others = [seen["scores"][seen["vocabulary"].index(word)] for word in seen["order"][1:]]
    assert others == sorted(others, reverse=measure != "distance")


@FEW
@given(st.lists(pairs, min_size=3, max_size=3), st.lists(pairs, min_size=2, max_size=2), st.permutations(range(3)))
def test_attention_is_an_average_of_a_set(x: list[list[float]], wq: list[list[float]], way: list[int]) -> None:
    seen = run("attention", {"X": x, "wq": wq})
    assert seen["hull"]
    assert np.allclose(np.sum(seen["weights"], -1), 1)
    moved = run("attention", {"X": [x[i] for i in way], "wq": wq})
    assert np.allclose(moved["outputs"], np.array(seen["outputs"])[way], atol=1e-9)
    masked = run("attention", {"X": x, "wq": wq, "masked": True})
    assert np.all(np.triu(masked["weights"], 1) == 0)
    assert masked["outputs"][0] == masked["v"][0]


def test_attentions_steps_lead_to_its_output() -> None:
    for state in ({}, {"masked": True, "row": 1}, {"scaled": False, "row": 2}):
        steps = run("attention", state)["steps"]
        powers = np.array([power or 0.0 for power in steps["powers"]])
        assert steps["total"] == pytest.approx(powers.sum())
        assert np.allclose(powers / steps["total"], steps["weights"])
        assert np.allclose(np.sum(steps["terms"], 0), steps["output"])


def test_four_heads_have_clear_jobs_and_one_head_adds_their_scores() -> None:
    words = ["the", "cat", "slept", "because", "it", "was", "tired"]
    patterns = np.array(run("heads", {"words": words})["patterns"])
    assert [int(np.argmax(row)) for row in patterns[0][1:]] == [0, 1, 2, 3, 4, 5]
    assert np.argmax(patterns[1][4]) == 1
    assert np.allclose(patterns[1][0], 1 / 7), "only a pronoun asks for nouns"
    assert all(np.argmax(row) == 0 for row in patterns[3])
    scores = np.log(patterns) * math.sqrt(2)
    together = softmax((scores - scores[..., :1]).sum(0) / math.sqrt(8))
    assert np.allclose(together, run("heads", {"words": words, "n_heads": 1, "head": 0})["pattern"], atol=1e-9)


def test_removing_a_head_empties_its_slice_alone() -> None:
    seen = run("heads", {"remove": [2]})
    changed = np.abs(np.array(seen["output"]) - np.array(seen["output_without"])).max(0) > 0
    assert changed.tolist() == [False] * 4 + [True, True] + [False] * 2
    assert not np.array(seen["output_without"])[:, 4:6].any()
    with pytest.raises(InputError, match="remove"):
        run("heads", {"n_heads": 2, "head": 0, "remove": [2]})


@pytest.mark.parametrize("design", itertools.product(depth.ACTIVATIONS, depth.NORMS, (False, True)))
def test_depths_gradient_is_that_of_finite_differences(design: tuple[str, str, bool]) -> None:
    rng = np.random.default_rng(3)
    x, upstream = rng.normal(size=(2, 5, 6))
    matrices = rng.normal(size=(4, 6, 6)) / math.sqrt(6)
    gradient = depth.backward(upstream, depth.forward(x, matrices, *design), matrices, *design)[0]
    for at in ((0, 0), (2, 3), (4, 5)):
        nudge = np.zeros_like(x)
        nudge[at] = 1e-6
        up, down = (float((upstream * depth.forward(x + s * nudge, matrices, *design)[-1]).sum()) for s in (1, -1))
        assert gradient[at] == pytest.approx((up - down) / 2e-6, rel=1e-5, abs=1e-7)


def test_layernorm_ignores_companions_and_batchnorm_does_not() -> None:
    seen = run("depth", {"batch": 8})["norms"]
    assert seen["layer"]["difference"] == 0
    assert seen["batch"]["difference"] > 0.1
    assert seen["by_size"]["layer"] == [0] * 6
    falling = seen["by_size"]["batch"]
    assert falling == sorted(falling, reverse=True)
    assert run("depth", {"batch": 1})["norms"]["batch"]["one"] == [0, 0, 0, 0]


FIRST = {
    "positions": "resid_pre", "mask": "blocks.0.attn.pattern", "blocks.0.attn": "blocks.0.resid_mid",
    "blocks.0.ffn": "blocks.0.resid_post", "blocks.1.attn": "blocks.1.resid_mid",
    "blocks.1.ffn": "blocks.1.resid_post", "final_norm": "final_norm",
}  # fmt: skip


@pytest.mark.parametrize("part", toy_model.PARTS)
def test_removing_a_part_of_the_whole_model_changes_nothing_before_it(part: str) -> None:
    seen = run("whole-model", {"remove": [part]})
    assert seen["first"]["name"] == FIRST[part]
    names = [tensor["name"] for tensor in seen["tensors"]]
    assert not any(tensor["changed"] for tensor in seen["tensors"][: names.index(FIRST[part])])
    assert seen["first"]["difference"] > 0


def test_the_whole_model_looks_back_only_and_copies() -> None:
    ids = np.array([toy_model.WORDS.index(word) for word in "the dog ran to the".split()])
    early = toy_model.forward(ids[:3])["logits"]
    assert np.allclose(toy_model.forward(ids)["logits"][:3], early, atol=1e-12)
    for noun in ("cat", "dog", "mat", "bird"):
        assert run("whole-model", {"text": ["the", noun, "sat", "on", "the"]})["top"][0][0] == noun
    seen = run("whole-model", {})
    assert seen["lens"][-1]["probabilities"] == pytest.approx(seen["probabilities"])
    assert seen["total"] == sum(matrix.size for matrix in toy_model.weights().values())
    assert run("whole-model", {"text": ["cat"]})["loss"] is None


@pytest.mark.parametrize("without", ["none", *toy_gpt.PARTS])
def test_the_small_gpts_gradients_are_those_of_finite_differences(without: str) -> None:
    recipe, rng = toy_gpt.Recipe(layers=2, without=without), np.random.default_rng(1)
    model = dict(toy_gpt.begin(recipe, rng))
    ids, targets = rng.integers(0, len(toy_gpt.CHARACTERS), (2, 2, 7))
    gradients = toy_gpt.gradient(model, ids, targets, recipe)[1]
    for name, each in model.items():
        at = tuple(int(rng.integers(0, size)) for size in each.shape)
        nudge = np.zeros_like(each)
        nudge[at] = 1e-5
        up, down = (toy_gpt.gradient(model | {name: each + s * nudge}, ids, targets, recipe)[0] for s in (1, -1))
        assert gradients[name][at] == pytest.approx((up - down) / 2e-5, abs=1e-8), name


def test_the_small_gpt_is_the_reference_block() -> None:
    recipe, rng = toy_gpt.Recipe(layers=1), np.random.default_rng(2)
    w = toy_gpt.begin(recipe, rng)
    ids = rng.integers(0, len(toy_gpt.CHARACTERS), (2, 9))
    of_attention = {f"{name}_proj.weight": w[f"blocks.0.{name}"] for name in "qkvo"}
    of_network = {f"{name}_proj.weight": w[f"blocks.0.{name}"] for name in ("up", "down")}
    places = np.arange(9)

    def norm(x: np.ndarray) -> np.ndarray:
        return rms_norm(x, np.ones(16), toy_gpt.EPS)

    parts = [
        lambda x: multi_head(x, of_attention, Heads(2), causal(places[:, None], places)),
        lambda x: feedforward.dense(x, of_network),
    ]
    stream = block.stream(w["embedding"][ids] + w["positions"][:9], [block.pre_norm(parts, norm)], norm)
    assert np.allclose(toy_gpt.forward(w, ids, recipe)[0], stream @ w["head"].T, atol=1e-12)


def test_the_small_gpt_learns_and_held_out_sentences_are_held_out() -> None:
    assert not set(toy_gpt.HELD_OUT) & set(toy_gpt.TRAINING)
    assert {c for s in toy_gpt.HELD_OUT for c in s} <= set("".join(toy_gpt.TRAINING))
    seen = run("small-gpt", {})
    assert seen["losses"][0] > seen["baselines"]["uniform"]
    assert seen["held_out_loss"] < 0.5 < seen["baselines"]["pairs"]
    cheat = run("small-gpt", {"without": "mask"})
    assert cheat["loss"] < seen["loss"] / 2, "without the mask the answer can be read off"


ADJECTIVES = {"red": ("rojo", "roja"), "white": ("blanco", "blanca")}
NOUNS = {"car": ("coche", 0), "dog": ("perro", 0), "house": ("casa", 1), "table": ("mesa", 1)}
ARTICLES = {"the": ("el", "la"), "a": ("un", "una")}


@pytest.mark.parametrize(("article", "noun"), itertools.product(ARTICLES, NOUNS))
def test_every_phrase_is_translated(article: str, noun: str) -> None:
    word, gender = NOUNS[noun]
    for adjectives in ([], ["red"], ["white"], ["red", "white"], ["white", "red"]):
        said = run("encoder-decoder", {"source": [article, *adjectives, noun], "written": 0})["translation"]
        assert said[:2] == [ARTICLES[article][gender], word]
        assert sorted(said[2:-1]) == sorted(ADJECTIVES[each][gender] for each in adjectives)
        assert said[-1] == "</s>"


def test_the_translators_grids_and_counts() -> None:
    seen = run("encoder-decoder", {"source": ["a", "red", "dog"], "written": 2})
    shapes = {name: np.shape(seen[f"{name}_pattern"]) for name in ("encoder", "decoder", "cross")}
    assert shapes == {"encoder": (4, 4), "decoder": (3, 3), "cross": (3, 4)}
    counted = sum(node["parameters"] for node in seen["diagram"])
    assert counted == seen["parameters"]["encoder_block"] + seen["parameters"]["decoder_block"] + 37000 * 512
    known = {node["id"] for node in seen["diagram"]}
    assert all(set(node["from"]) <= known for node in seen["diagram"])
    assert set(seen["legal"]) == set(toy_translator.PARTS)
    for bad in (["red", "the", "dog"], ["the", "red", "red", "dog"], ["the"], ["the", "dog", "car"], "the dog"):
        with pytest.raises(InputError, match="source"):
            run("encoder-decoder", {"source": bad})


@FEW
@given(
    st.lists(st.integers(-20, 20).map(lambda n: n / 4), min_size=8, max_size=8),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.integers(0, 8),
    st.sampled_from([0.3, 0.8, 1.0]),
    st.sampled_from([0.0, 0.2]),
)
def test_samplings_last_stage_is_the_reference(logits: list[float], t: float, k: int, p: float, share: float) -> None:
    state = {
        "logits": logits,
        "temperature": t,
        "top_k": k,
        "top_p": p,
        "min_p": share,
        "seen": ["mat"],
        "presence": 1.0,
    }
    seen = run("sampling", state)
    expected = sampling.distribution(logits, sampling.Sampling(t, k, p, share, 1.0, 1.0), [0])
    assert seen["probabilities"] == pytest.approx(expected)
    assert sum(seen["counts"]) == 200
    assert all(count == 0 for count, kept in zip(seen["counts"], seen["stages"][-1]["kept"], strict=True) if not kept)
    for stage in seen["stages"]:
        assert sum(stage["probabilities"]) == pytest.approx(1)


def test_beams_find_what_greed_misses() -> None:
    found = {n: run("sampling", {"beams": n})["tree"] for n in (1, 2, 3)}
    assert found[1]["found"] == found[1]["greedy"] == ["a", "red"]
    assert found[2]["found"] == found[3]["found"] == found[2]["best"] == ["the", "dog"]
    ends = [path for path in found[1]["paths"] if len(path["words"]) == 2]
    assert max(ends, key=lambda path: path["probability"])["words"] == ["the", "dog"]


@pytest.mark.parametrize("tokens", range(1, 13))
def test_a_cache_changes_the_work_and_not_the_result(tokens: int) -> None:
    seen = run("kv-cache", {"tokens": tokens, "step": tokens - 1})
    assert seen["difference"] < 1e-12
    assert seen["rotated"]
    assert seen["work"]["total_dots"] == tokens * (tokens + 1) // 2
    assert seen["work"]["without"]["total_dots"] == sum(n * (n + 1) // 2 for n in range(1, tokens + 1))
    fresh = {
        cached: run("kv-cache", {"tokens": tokens, "step": tokens - 1, "cached": cached}) for cached in (True, False)
    }
    assert np.sum(fresh[True]["fresh"]) == seen["work"]["dots"][-1] == tokens
    assert np.sum(fresh[False]["fresh"]) == fresh[False]["work"]["dots"][-1]


def test_a_cache_weighs_what_its_heads_weigh() -> None:
    def cost(**state: Any) -> dict[str, Any]:
        return run("kv-cache", {"model": "llama-3-8b", "memory": 80.0, **state})["cost"]

    assert cost(kv_heads=32)["cache"] == 4 * cost()["cache"]
    assert cost(batch=3)["cache"] == 3 * cost()["cache"]
    assert cost(cache_bytes=1.0)["cache"] == cost()["cache"] / 2
    longest = cost()["longest"]
    assert cost(context=longest)["fits"]
    assert not cost(context=longest + 2)["fits"]
    assert (cost(batch=1, compute=1e5)["limit"], cost(batch=512, compute=1e3)["limit"]) == ("bandwidth", "compute")
    known = {"smollm2": 134_515_008, "llama-2-7b": 6_738_415_616, "llama-3-8b": 8_030_261_248}
    assert {name: model.parameters for name, model in kv_cache.MODELS.items()} == known
    with pytest.raises(InputError, match="kv_heads"):
        run("kv-cache", {"kv_heads": 2})
