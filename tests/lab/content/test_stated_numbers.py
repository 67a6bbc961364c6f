"""Numbers that the chapters state, computed anew: each phrase, filled with what the reference gives, must stand."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.lab import course
from cutaway.lab.labs import run, show
from cutaway.reference.attention import attend, pattern
from cutaway.reference.functions import sigmoid, softmax
from cutaway.reference.masks import causal
from cutaway.reference.norms import layer_norm
from cutaway.reference.positions import sinusoidal
from cutaway.reference.sampling import Sampling, distribution

CHAPTERS = {file.stem: file.read_text(encoding="utf-8") for file in (course.CONTENT / "en" / "chapters").iterdir()}
X = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])
ROW = X[0] @ X.T / math.sqrt(2)
CAT = attend(X, X, X)
FIVE = np.array([0.5, 0.25, 0.15, 0.07, 0.03])


def two(*values: float) -> list[str]:
    return [show.fixed(value) for value in values]


def heads_row(n_heads: int, head: int) -> list[float]:
    return run("heads", {"n_heads": n_heads, "head": head, "row": 4})["weights"]


def depth(**state: Any) -> dict[str, str]:
    return run("depth", state)["numbers"]


def model(**state: Any) -> dict[str, str]:
    return run("whole-model", state)["numbers"]


def lens(depth: str, word: str) -> float:
    seen = run("whole-model", {})
    at = next(each for each in seen["lens"] if each["depth"] == depth)
    return at["probabilities"][seen["vocabulary"].index(word)]


def cache(name: str) -> dict[str, Any]:
    return run("kv-cache", {"model": name, "context": 8192})


def dots(cached: bool) -> int:
    return run("kv-cache", {"cached": cached})["work"]["total_dots"]


def dot(a: list[float], b: list[float]) -> tuple[float, float]:
    product = float(np.dot(a, b))
    return product, product / float(np.linalg.norm(a) * np.linalg.norm(b))


STATED: list[tuple[str, str, Callable[[], Any]]] = [
    ("embeddings", "kitten $7 / (2.83 \\times 2.5) = {}$", lambda: two(dot([2, 2], [1.5, 2])[1])),
    ("embeddings", "dog $8 / (2.83 \\times 3.16) = {}$", lambda: two(dot([2, 2], [3, 1])[1])),
    ("attention", "Divided by $\\sqrt 2$: ${}, {}, 0$", lambda: two(*ROW[:2])),
    ("attention", "each: ${:.1f}, {:.2f}, 1$. Their sum: ${:.1f}$", lambda: [*np.exp(ROW[:2]), np.exp(ROW).sum()]),
    ("attention", "Weights: ${:.3f}, {:.3f}, {:.3f}$", lambda: CAT[1][0]),
    ("attention", "$[{:.3f}, {:.3f}, {:.3f}]$: the same order, but sharper", lambda: softmax(ROW * math.sqrt(2))),
    ("heads", "$e^5 / (3e + e^5) = {}$", lambda: two(softmax([1.0, 1.0, 1.0, 5.0])[3])),
    ("heads", "still gets {} and *it* itself {}", lambda: two(heads_row(1, 0)[1], heads_row(1, 0)[4])),
    ("heads", "which head *previous* gave {}", lambda: two(heads_row(4, 0)[3])),
    ("parts", "The output is $0.768\\,[2,0] + 0.187\\,[1,1] + 0.045\\,[0,2] = [{}, {}]$", lambda: two(*CAT[0][0])),
    ("parts", "$1.5^{{30}} \\approx {}", lambda: [f"{1.5**30:,.0f}".replace(",", "{,}")]),
    ("parts", "as $[2, 0]$ in front and as $[{}, {}]$ at the back", lambda: two(
        *attend(X[::-1], X[::-1], X[::-1], causal(np.arange(3)[:, None], np.arange(3)))[0][2])),
    ("modern", "= [{}, {}, {}, {}]$. Try", lambda: two(*layer_norm([4.0, 2.0, -2.5, -3.5]))),
    ("whole-model", "After block 0 the four nouns have {} each", lambda: two(lens("block 0", "cat"))),
    ("whole-model", "After block 1 *cat* has {}", lambda: two(lens("block 1", "cat"))),
    ("whole-model", "words without any knowledge costs $\\ln 12 = {:.2f}$", lambda: [math.log(12)]),
    ("whole-model", "blocks and {} weights", lambda: [model()["parameters"]]),
    ("generation", "$e^2 : e^0 = 7.39 : 1$, so ${}$ and ${}$", lambda: two(*softmax([2.0, 0.0]))),
    ("generation", "logits $1$ and $0$, $2.72 : 1$, so ${}$ and ${}$", lambda: two(*softmax([1.0, 0.0]))),
    ("generation", "$54.6 : 1$, so ${}$ and ${}$", lambda: two(*softmax([4.0, 0.0]))),
    ("generation", "after scaling ${}$ and ${}$", lambda: two(*distribution(np.log(FIVE), Sampling(top_k=2))[:2])),
    ("inference", "\\dots + 8 = {}$", lambda: [dots(True)]),
    ("inference", "\\dots + 36 = {}$", lambda: [dots(False)]),
    ("inference", "| SmolLM2-135M | 30 × 3 × 64 | {:,.0f} | {:.2g} GB |",
     lambda: [cache("smollm2")["cost"][key] / by for key, by in (("per_token", 1), ("cache", 1e9))]),
    ("inference", "| Llama 2 7B | 32 × 32 × 128 | {:,.0f} | {:.2g} GB |",
     lambda: [cache("llama-2-7b")["cost"][key] / by for key, by in (("per_token", 1), ("cache", 1e9))]),
    ("inference", "| Llama 3 8B | 32 × 8 × 128 | {:,.0f} | {:.2g} GB |",
     lambda: [cache("llama-3-8b")["cost"][key] / by for key, by in (("per_token", 1), ("cache", 1e9))]),
    ("embeddings", "the model's {:,}", lambda: [cache("smollm2")["model"]["parameters"]]),
    ("transformers", "= [{:.4f}, {:.4f}, 0.02, {:.4f}]$", lambda: sinusoidal(2, 4)[[0, 1, 3]]),
    ("transformers", "their sum $2.476$: ${:.3f}$ and ${:.3f}$", lambda: pattern([0.8654076, -2.3015387])),
    ("depth", "is about ${} \\times 10^{{{}}}$ of what", lambda: [
        round(float(part)) for part in depth()["first"].split("e")]),
    ("depth", "a factor of 1.4 a layer, {:,} after", lambda: [
        round(round(run("depth", {"activation": "relu", "residual": True})["first"]), -4)]),
    ("depth", "with a std of about {:.1f}", lambda: [float(depth(batch=4)["spread"])]),
    ("depth", "batches of 64 still {}", lambda: [depth(batch=64)["spread"]]),
    ("encoder-decoder", "gives *red* the weight {} and the end sign {}", lambda: two(
        *np.array(run("encoder-decoder", {})["row"])[[1, 3]])),
    ("encoder-decoder", "$4 \\times 512^2 = {}$", lambda: [f"{4 * 512**2:,}".replace(",", "{,}")]),
]  # fmt: skip


@pytest.mark.parametrize(("chapter", "phrase", "values"), STATED, ids=[f"{c}: {p[:40]}" for c, p, _ in STATED])
def test_the_phrase_stands_with_the_computed_number(chapter: str, phrase: str, values: Callable[[], Any]) -> None:
    filled = phrase.format(*values()).replace("-0.00", "0.00")
    assert filled in CHAPTERS[chapter], f"computed: {filled}"


def test_verdicts_in_the_text_hold_in_the_lab() -> None:
    assert sigmoid(0.0) * (1 - sigmoid(0.0)) == 0.25
    assert run("depth", {"activation": "tanh"})["first"] == pytest.approx(0.1, abs=0.02)
    assert run("depth", {"activation": "relu"})["factor"] == pytest.approx(0.7, abs=0.02)
    assert all(
        0.5 < run("depth", {"activation": a, "residual": True, "norm": "layer"})["first"] < 10
        for a in ("sigmoid", "tanh", "relu")
    )
    assert run("whole-model", {"text": "a bird saw a dog . a bird".split()})["losses"][3] > 3, "dog comes as a surprise"
    assert np.allclose(run("attention", {"wq": SWAP.tolist()})["weights"][0], CAT[1][0][::-1])


def test_what_removal_does_to_the_translation_is_as_told() -> None:
    def said(*removed: str, **state: Any) -> str:
        return run("encoder-decoder", {"remove": list(removed), **state})["numbers"]["translation"]

    assert said() == said("decoder.mask") == "la casa roja </s>"
    assert said("encoder.attn") == said(both_ways=False) == "el casa rojo </s>"
    assert "roja roja roja" in said("decoder.attn")
    taught = run("encoder-decoder", {"remove": ["decoder.mask"]})
    assert min(taught["taught"]) > 0.99
    assert min(taught["taught_without"]) < 0.01


def test_the_ids_of_the_chat_are_those_of_the_real_tokenizer(shared: Path) -> None:
    cases = json.loads((shared / "cases" / "smollm2.json").read_text())
    chat = next(case for case in cases["chat"] if "pirate" in case["messages"][0]["content"])
    ids = " ".join(map(str, chat["with_generation_prompt"]["ids"]))
    rows = [row for row in CHAPTERS["transformers"].splitlines() if row.startswith("| ") and " 198" in row]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(cell[1].split()) == int(cell[2]) for cell in cells)
    assert sum(int(cell[2]) for cell in cells) == 42
    system, first, _, _, opening = (cell[1] for cell in cells)
    assert ids == f"{system} {first} {opening}"
    words = {text: str(case["ids"]) for case in cases["tokenization"] for text in [case["text"]]}
    assert words[" Hello world"].startswith("[38699,")
    assert words["Hello  world"].startswith("[19556,")


@pytest.mark.slow
def test_the_table_of_removed_parts_is_what_the_lab_measures() -> None:
    names = {
        "everything": "none", "without attention": "attn", "without residuals": "residual", "without norms": "norms",
        "without the FFN": "ffn", "without positions": "positions",
    }  # fmt: skip
    rows = [row.strip("| ").split(" | ") for row in CHAPTERS["small-gpt"].splitlines() if row.startswith("| ")]
    stated = {row[0]: [float(value) for value in row[1:]] for row in rows if row[0] in names}
    assert set(stated) == set(names)
    for name, without in names.items():
        for seed, value in enumerate(stated[name]):
            measured = run("small-gpt", {"without": without, "seed": seed})["held_out_loss"]
            assert measured == pytest.approx(value, abs=0.006), (name, seed)


def test_the_code_of_the_chapters_is_python_and_gives_what_stands_below_it() -> None:
    told = 0
    for code in re.findall(r"```python\n(.*?)```", "".join(CHAPTERS.values()), re.S):
        body = ast.parse(code).body
        if not any(isinstance(each, ast.Expr) for each in body):
            continue  # a sketch of a model: nothing is said of what it gives
        names: dict[str, Any] = {"np": np}
        for each in body:
            source = ast.get_source_segment(code, each)
            if isinstance(each, ast.Expr):
                below = code.splitlines()[each.end_lineno]
                assert below.startswith(f"# {eval(source, names)!r}"), code
                told += 1
            else:
                exec(source, names)
    assert told >= 2
