"""A user's mistake is one line that says where, what and what to do, and exit 2."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import saved

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
    f"spec count gpt2 --tokens {10**400}": "is more than 9,223,372,036,854,775,807",
    "pull nosuch": "no model of this name",
    "pull smolm2": "the nearest is smollm2",
    "run smolm2 hi": "the nearest is smollm2",
    "show gpt22": "the nearest is gpt2",
    "run smollm2 hi --remove blocks[0:2].fnn": "did you mean blocks[0:2].ffn?",
    "trace neuron smollm2 --layer 0 --neuron 0 --text x --target b": "Unknown option: --target",
    "trace lens smollm2 hi --positon 3": "Did you mean --position? `cutaway trace lens --help`",
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


HOSTILE = {
    "--temperature nan": "temperature: should be a finite number",
    "--temperature inf": "temperature: should be a finite number",
    "--max-tokens -1": "max_tokens: should be greater than or equal to 1",
    "--max-tokens 0": "max_tokens: should be greater",
    "--top-p 2": "top_p: should be less than or equal to 1",
    "--top-p nan": "top_p: should be a finite number",
    "--min-p -0.1": "min_p: should be greater",
    "--top-k -1": "top_k: should be greater",
    "--repetition-penalty 0": "repetition_penalty: should be greater than 0",
    f"--seed {2**70}": f"seed: {2**70}; give a whole number from 0 to 2^64 - 1",
    "--seed -1 --temperature 1": "seed: -1; give",
    "--remove blocks.99.ffn": "the model has layers 0 to 1",
    "--remove ffn --text /dev/zero": "/dev/zero: more than 64 MiB; give a part of it",
    "--remove ffn --text /dev/null": "/dev/null: 0 tokens; at least 2 are needed",
    "--remove ffn --text /": "/: cannot be read as text",
}


@pytest.mark.parametrize("words", HOSTILE)
def test_a_hostile_option_is_one_line(cutaway, tiny, words):
    done = cutaway("run", tiny, "the capital", *words.split(" "))
    assert done.status == 2 and HOSTILE[words] in done.err and len(done.err.splitlines()) == 1, done.err


def test_a_hostile_name_or_text_is_one_line(cutaway, tiny, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "noise").write_bytes(bytes(range(128, 256)))
    for words, told in (
        (("run", tiny, ""), "prompt 0: no tokens"),
        (("run", tiny, "\ud800"), "valid Unicode"),
        (("run", "", "hi"), "the model's name is empty"),
        (("run", "a" * 5000, "hi"), "File name too long"),
        (("run", tmp_path / "loop", "hi"), "symbolic links"),
        (("run", "/dev/zero", "hi"), "/dev/zero"),
        (("show", tmp_path / "noise"), "noise"),
        (("spec", "check", "/dev/zero"), "/dev/zero"),
        (("eval", tiny, "--text", "/dev/zero"), "more than 64 MiB"),
        (("eval", tiny, "--text", tmp_path / "noise"), "cannot be read as text"),
        (("chat", tiny, "--temperature", "nan"), "temperature: should be a finite number"),
    ):
        done = cutaway(*words)
        assert done.status == 2 and told in done.err and len(done.err.splitlines()) == 1, (words, done.err)


def test_white_space_is_a_text(cutaway, tiny):
    assert cutaway("run", tiny, " \n\t ", "--max-tokens", "2").status == 0


CHANGES = [
    "=", "=7", "n_heads=", "n_heads=nan", "n_heads=2.5", "n_heads=true", "n_layers=99999999999", "layers=none",
    "layers=" + "[" * 3000, f"d_model={10**400}", f"d_ff={10**400}", f"vocab_size={10**400}",
    "...=3", "__class__=3", "kind=nosuch", "embedding=3", "attn.soft_cap=inf",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_hostile_setting_is_one_line(cutaway, change):
    done = cutaway("show", "gpt2-tiny", "--set", change)
    assert done.status == 2 and len(done.err.splitlines()) == 1, done.err


def test_a_folder_with_a_link_to_itself_is_told(cutaway, tmp_path):
    (tmp_path / "config.json").symlink_to("config.json")
    done = cutaway("show", tmp_path)
    assert done.status == 2 and "config.json" in done.err and len(done.err.splitlines()) == 1, done.err


def test_a_wrong_option_is_told_before_a_model_is_loaded(cutaway, monkeypatch, tmp_path):
    def load(*_):
        raise AssertionError("a model was loaded")

    for module in ("run", "compare", "evaluate", "models"):  # the last is where the others have it from
        monkeypatch.setattr(f"cutaway.cli.{module}.load_model", load)
    for words, told in (
        ("run smollm2 hi --temperature -1", "temperature"),
        ("run smollm2 hi --seed -1", "seed: -1"),
        ("run smollm2 hi --greedy --temperature 1", "choose one"),
        ("chat smollm2 --top-k 3", "Unknown option"),
        ("chat smollm2 --max-tokens 0", "max_tokens"),
        ("compare smollm2 smollm2 --tolerance -1", "Must be >= 0"),
        ("compare smollm2 smollm2 --tolerance nan", "Must be >= 0"),
        (f"compare smollm2 smollm2 --html {tmp_path}", "it is a folder"),
        ("trace numerics smollm2 --html nowhere/p.html", "no folder nowhere"),
        ("trace lens smollm2 hi --html nowhere/p.html", "no folder nowhere"),
        ("trace lens smollm2 hi --png p.gif", ".svg or .pdf"),
        ("trace lens smollm2 hi --top 0", "Must be >= 1"),
        ("trace attribution smollm2 hi --top -1", "Must be >= 1"),
        ("trace heads smollm2 --top 0", "Must be >= 1"),
        (f"trace heads smollm2 --seed {2**64}", "--seed"),
        ("trace gradients smollm2 hi --tolerance nan", "Must be >= 0"),
        ("trace gradients smollm2 hi --most 0", "Must be >= 1"),
        ("trace neuron smollm2 --layer 0 --neuron 0 --text x --top 0", "Must be >= 1"),
        ("trace tuned smollm2 hi --train x --steps 0", "Must be >= 1"),
        ("show gpt2 --code --diff llama", "choose one"),
    ):
        done = cutaway(*words.split(" "))
        assert done.status == 2 and told in done.err and len(done.err.splitlines()) == 1, (words, done.err)
        assert not done.out


def test_what_is_no_utf8_on_standard_input_is_one_line(cutaway, tiny, monkeypatch):
    noise = lambda text: io.TextIOWrapper(io.BytesIO(b"ab\xff\n"), encoding="utf-8")  # noqa: E731
    monkeypatch.setattr("tests.cli.conftest.io.StringIO", noise)
    for words in (("run", tiny, "--stdin"), ("chat", tiny)):
        done = cutaway(*words)
        assert done.status == 2 and done.err == "cutaway: standard input: byte 2 is not utf-8; give a UTF-8 text\n"


def test_a_model_that_writes_nothing_does_not_chat(cutaway, tmp_path):
    folder = saved("bert-tiny", tmp_path / "bert")
    for words in (("chat", folder), ("run", folder, "hi", "--chat")):
        done = cutaway(*words)
        assert done.status == 2 and "writes no text" in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lens", "ab", "--top", "99999"], ""),
        (["lens", "9" * 30, "--ids"], "numbers of tokens"),
        (["lens", "1_0", "--ids"], "numbers of tokens"),
        (["paths", "ab", "ac", "--right", "b", "--wrong", "c", "--to", "9" * 5000], "write logits"),
    ],
)
def test_hostile_numbers_of_a_trace(cutaway, tiny, words, told):
    done = cutaway("trace", words[0], tiny, *words[1:])
    assert done.status == (2 if told else 0) and told in done.err and len(done.err.splitlines()) <= 1


def test_a_hostile_setting_of_a_lab_is_one_line(cutaway):
    done = cutaway("lab", "run", "rope", "--set", "m=" + "[" * 5000)
    assert done.status == 2 and len(done.err.splitlines()) == 1 and "lab rope: m is" in done.err


def test_a_place_that_cannot_be_converted_to_is_told_before_the_work(cutaway, tiny, tmp_path):
    (tmp_path / "taken").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for out, told in (
        ("taken", "something already"),
        ("link", "something already"),
        ("taken/x", "Not a directory"),
        ("a" * 3000, "name too long"),
        ("", "something already"),
    ):
        done = cutaway("convert", tiny, "--to", "hf", "--out", tmp_path / out if out else "")
        assert done.status == 2 and told in done.err and len(done.err.splitlines()) == 1, done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "taken"]


def test_a_page_that_the_disk_has_no_room_for_leaves_nothing(cutaway, tiny, tmp_path, monkeypatch):
    def write_half(file, text, encoding):
        file.write_bytes(text.encode(encoding)[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write_half)
    for words in (("trace", "numerics", tiny, "ab"), ("compare", tiny, tiny, "ab")):
        done = cutaway(*words, "--html", tmp_path / "page.html")
        assert done.status == 2 and "No space left" in done.err and len(done.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_full_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "cutaway", "spec", "print", "gpt2"], stdout=full, stderr=-1)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr
