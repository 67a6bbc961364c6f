"""What a caller gets wrong from Python is refused in a sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import cutaway
from cutaway import spec
from cutaway.checkpoints.cache import cache_dir
from cutaway.errors import CutawayError
from tests.cli.conftest import saved


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return cutaway.load(saved("modern-tiny", tmp_path_factory.mktemp("mistakes") / "tiny"))


def listen(model, hear, *names):
    with cutaway.listening(model, hear, *names):
        return getattr(model, "model", model)(torch.tensor([[1, 2]]))


def edited(model, change):
    with cutaway.edit(model, {"blocks.0.attn.z": change}):
        return getattr(model, "model", model)(torch.tensor([[1, 2]]))


def written(loaded, **options):
    return loaded.generate("hi", **{"max_tokens": 2, **options})


TINY = spec.preset("gpt2-tiny")
MISTAKES = {
    "a type by its name": (lambda m: cutaway.load("gpt2-tiny", dtype="bfloat16"), "dtype: 'bfloat16'"),
    "a type of numbers that no weight has": (lambda m: cutaway.load(m.path, dtype=torch.int64), "dtype: torch.int64"),
    "a name where a spec is asked for": (lambda m: cutaway.build("gpt2-tiny"), "'gpt2-tiny' is no spec"),
    "a seed past the generator": (lambda m: cutaway.build(TINY, seed=2**70), "seed: "),
    "a seed that is no number": (lambda m: cutaway.build(TINY, seed="x"), "seed: 'x'"),
    "a text as a seed": (lambda m: written(m, seed="1"), "seed: 1; give"),
    "half a number as a seed": (lambda m: written(m, seed=1.5), "seed: 1.5"),
    "one text where several are asked for": (lambda m: written(m, stop_strings="abc"), "stop_strings"),
    "options as a table": (lambda m: cutaway.generate(m.model, [1], {"max_tokens": 2}), "options: a dict"),
    "a mask as a list": (lambda m: cutaway.generate(m.model, [[1, 2]], mask=[[1, 1]]), "mask: a list"),
    "generating with what holds a model": (lambda m: cutaway.generate(m, [1]), "Loaded is no module; give its .model"),
    "listening to what holds a model": (lambda m: listen(m, print), "Loaded is no module"),
    "recording what holds a model": (lambda m: cutaway.record(m, "embedded").__enter__(), "Loaded is no module"),
    "editing what holds a model": (lambda m: edited(m, lambda z: z), "Loaded is no module"),
    "removing from what holds a model": (lambda m: cutaway.remove(m, "mask"), "Loaded is no module"),
    "a listener's word": (
        lambda m: listen(m.model, lambda n, x: n, "embedded"),
        "embedded: the listener returned a str",
    ),
    "an edit's word": (lambda m: edited(m.model, lambda z: "z"), "made a str of blocks.0.attn.z"),
    "no text to embed": (lambda m: m.embed(None), "texts: a NoneType"),
    "an unknown way to pool": (lambda m: m.embed("hi", pool="nosuch"), "pool: 'nosuch'"),
    "bytes as a text": (lambda m: m.encode(b"hi"), "of the type bytes"),
    "half a character": (lambda m: m.encode("ab\ud800"), "character 2 is half of a surrogate pair"),
    "half a character in a pair": (lambda m: m.tokenizer.encode_pair("a", "\ud800"), "character 0 is half"),
    "half a character in a batch": (lambda m: m.tokenizer.encode_batch(["a", "\udfff"]), "character 0 is half"),
    "no text in a batch": (lambda m: m.tokenizer.encode_batch(["a", None]), "of the type NoneType"),
    "words as ids": (lambda m: m.decode(["a"]), "no list of token ids"),
    "one id as a list": (lambda m: m.decode(3), "no list of token ids"),
    "a fraction as an id": (lambda m: m.decode([1.5]), "no list of token ids"),
    "an id of many digits": (lambda m: m.tokenizer.token(2**70), "no token id"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told(loaded, mistake):
    make, told = MISTAKES[mistake]
    with pytest.raises(CutawayError) as error:
        make(loaded)
    assert told in str(error.value) and "\n" not in str(error.value), error.value


def test_what_is_near_is_taken(loaded):
    plain = written(loaded, seed=3, temperature=1.0)
    assert written(loaded, seed=np.int64(3), temperature=1.0) == plain
    assert written(loaded, stop_strings=["nowhere"], stop_ids=[]) == written(loaded)
    assert loaded.decode(np.array([1])) == loaded.decode(torch.tensor([1])) == loaded.decode([1, 2**70])


@pytest.mark.parametrize(
    "text", ["\0", "\U0010ffff", "a\u0301" * 100, "\u202e\u200d\ufeff", "\r\n\t\x0b\x1b[31m", "𐀀" * 50]
)
def test_any_text_comes_back(loaded, text):
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.tokenizer.encode_batch([text]) == [loaded.encode(text)]


def test_a_stream_that_is_closed_is_no_fault():
    command = [sys.executable, "-m", "cutaway", "spec", "print", "gpt2-tiny"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&-', "sh", *command], stderr=-1)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("CUTAWAY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(CutawayError, match="set CUTAWAY_CACHE"):
        cache_dir()
