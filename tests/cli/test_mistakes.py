"""A user's mistake is one line that says where, what and what to do, and exit 2."""

from __future__ import annotations

import pytest

MISTAKES = {
    "run nosuch hi": "no such model",
    "run smollm2 ''": "prompt",
    "run modern-tiny hi": "no tokenizer",
    "run smollm2 hi --trace --remove nosuch": "no such part; it has layer",
    "run smollm2 hi --temperature -1": "temperature",
    "run smollm2 hi --top-p 2": "top_p",
    "run --nosuch": "Unknown option: --nosuch",
    "run --max-tokens abc": 'unable to convert "abc" into int',
    "nosuch": 'Unknown command "nosuch"',
    "show": "requires an argument",
    "show gpt2 --set n_heads=7": "n_heads",
    "show gpt2 --set n_heads": "write it as path=value",
    "show gpt2 --set nosuch=7": "nosuch",
    "show gpt2 --diff nosuch": "no such preset",
    "eval --text nosuch.txt": "cannot be read",
    "spec check nosuch.toml": "no such preset",
    "spec count gpt2 --tokens 0": "less than 1",
    "spec count llama-tiny --measure --tokens 100000": "context",
    "pull nosuch": "no model of this name",
    "chat modern-tiny": "no chat template",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line(cutaway, words):
    done = cutaway(*[word.strip("'") for word in words.split(" ")])
    assert done.status == 2 and MISTAKES[words] in done.err, done.err
    assert len(done.err.splitlines()) == 1 and done.err.startswith("cutaway: ")


FILES = {
    "broken.gguf": b"GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
    "empty.gguf": b"",
    "noise.gguf": bytes(range(256)) * 8,
    "broken.toml": b"kind = [",
    "unknown.toml": b"kind = 'decoder'\nd_modle = 8",
    "broken.json": b"{",
    "bytes.toml": b"\xff\xfe",
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_told_by_name(cutaway, tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    for verb in ("show", "run"):
        done = cutaway(verb, tmp_path / name)
        assert done.status == 2 and name in done.err and len(done.err.splitlines()) == 1, done.err


def test_a_truncated_model_is_told(cutaway, tmp_path):
    whole = cutaway("pull", "smollm2").out.strip()
    path = tmp_path / "cut.gguf"
    with open(whole, "rb") as source:
        path.write_bytes(source.read(4_000_000))
    done = cutaway("run", path, "hi")
    assert done.status == 2 and "cut.gguf" in done.err and len(done.err.splitlines()) == 1


def test_an_unknown_key_is_told_with_the_nearest_right_one(cutaway, tmp_path):
    (tmp_path / "unknown.toml").write_bytes(FILES["unknown.toml"])
    assert "'d_model'" in cutaway("show", tmp_path / "unknown.toml").err


def test_a_folder_that_is_no_model_is_told(cutaway, tmp_path):
    done = cutaway("run", tmp_path, "hi")
    assert done.status == 2 and len(done.err.splitlines()) == 1


def test_a_prompt_beyond_the_context_is_told(cutaway, tiny):
    done = cutaway("run", tiny, "a" * 2000)
    assert done.status == 2 and "the model's context is" in done.err


def test_problems_as_json(cutaway, tmp_path):
    import json

    from cutaway import spec

    path = tmp_path / "bad.toml"
    path.write_text(spec.to_toml(spec.preset("gpt2-tiny")).replace("n_heads = 4", "n_heads = 5"), encoding="utf-8")
    done = cutaway("spec", "check", path, "--json")
    told = json.loads(done.out)
    assert done.status == 2 and not told["sound"] and told["problems"][0]["legal"][:3] == [1, 2, 4]
