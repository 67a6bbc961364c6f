"""All that the lab says is in one folder a language: a language made up by a rule must come out everywhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cutaway.errors import InputError
from cutaway.lab import course
from cutaway.lab.exercises import IDS, exercise, load
from cutaway.lab.exercises.judge import judge
from cutaway.lab.labs import IDS as LABS
from cutaway.lab.labs import run, say
from cutaway.lab.labs.toy_gpt import PARTS
from cutaway.lab.worker import observe

STATES = [
    *((lab, {}) for lab in LABS),
    ("order", {"pe": True}), ("order", {"orders": [["cat", "dog"], ["cat", "car"]]}), 
    ("layernorm", {"axis": "column"}),
    ("layernorm", {"word": [1, 1, 1, 1]}), ("stack", {"rule": "post"}), ("stack", {"gain": 2}), 
    ("norms", {"x": [1] * 4}),
    ("residual-path", {"design": "pre"}), ("mask", {"masked": False}), ("depth", {"activation": "relu", "gain": 4}),
    ("depth", {"residual": True, "norm": "layer"}), ("heads", {"n_heads": 8}), ("embeddings", {"measure": "dot"}),
    ("embeddings", {"measure": "distance"}), ("whole-model", {"remove": ["mask"]}), 
    ("block", {"L": 1, "remove": ["mask"]}),
    *(("small-gpt", {"without": part, "step": 0}) for part in PARTS),
    *(("block", {"design": design, "remove": ["ffn"]}) for design in ("post", "modern", "encoder-decoder")),
]  # fmt: skip
#: What is data in a lab's result: words that its model reads or writes, names of tensors. So is what stands in quotes.
DATA = {"sentences", "held_out_sentences", "sample", "characters", "name", "rules", "letters", "words"}
TWO_WORDS = re.compile(r"[a-z]{3,} [a-z]{3,}")


def disguised(value: Any) -> Any:
    """Every letter of every text, but for those of places {so}, becomes a letter that English has not."""
    if isinstance(value, dict):
        return {key: disguised(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [disguised(inner) for inner in value]
    return re.sub(r"(\{\w*\})|[A-Za-z]", lambda m: m[1] or "ж", value)


@contextmanager
def disguise() -> Iterator[None]:
    """While it lasts, every file of texts is read in a made-up language."""
    caches, read = (exercise._read, say.words), tomllib.loads
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", lambda text: disguised(read(text)))
        for each in caches:
            each.cache_clear()
        yield
    for each in caches:
        each.cache_clear()


def strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from strings(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner, key)


@pytest.mark.parametrize(("lab", "state"), STATES, ids=[f"{lab} {state}" for lab, state in STATES])
def test_a_labs_words_are_those_of_the_language(lab: str, state: dict) -> None:
    english = run(lab, state)
    with disguise():
        told = run(lab, state)
    assert "ж" in told["text"]
    numbers = set(english["numbers"].values())
    said = [(key, re.sub(r"'[^']*'", "", text)) for key, text in strings(told) if key not in DATA]
    assert [pair for pair in said if TWO_WORDS.search(pair[1]) and pair[1] not in numbers] == []
    assert told["numbers"] == english["numbers"] or lab == "ffn"


@pytest.mark.parametrize("name", IDS)
def test_an_exercises_words_are_those_of_the_language(name: str) -> None:
    with disguise():
        known = load.__wrapped__(name)
    said = [known.title, known.prompt, *known.hints, *(case.name for case in known.cases), *known.words.values()]
    comments = re.findall(r"# (.*)", known.starter)
    assert comments
    for text in [*said, *comments]:
        assert not TWO_WORDS.search(text), text
    assert "«" not in known.starter + known.solution
    with np.errstate(all="ignore"):
        for mistake in known.mistakes:
            report = judge(known, observe(mistake.code, known.plan()))
            assert report.messages
            assert not any(TWO_WORDS.search(message) for message in report.messages if "rror" not in message)


def test_a_language_without_texts_is_refused() -> None:
    for call in (lambda: run("rope", {}, "xx"), lambda: load("rotate", "xx"), lambda: course.course("xx")):
        with pytest.raises(InputError, match="xx"):
            call()
