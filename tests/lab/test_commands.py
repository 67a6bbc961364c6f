"""`cutaway lab` and `cutaway learn` in the terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from cutaway.cli import lab, learn
from cutaway.errors import InputError
from cutaway.lab import labs
from cutaway.lab.exercises import IDS, load

ROOT = Path(__file__).parents[2]


def said(command: object, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    command(list(words), result_action="return_value")  # type: ignore[operator]
    return capsys.readouterr().out


def test_a_lab_in_the_terminal_gives_the_same_as_in_the_browser(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(lab.app, "run", "rope", "--set", "m=2", "--json", capsys=capsys)
    assert json.loads(out) == labs.run("rope", {"m": 2})
    several = said(
        lab.app, "run", "block", "--set", 'remove=["mask"]', "design=modern", "--set", "L=3", "--json", capsys=capsys
    )
    assert json.loads(several) == labs.run("block", {"remove": ["mask"], "design": "modern", "L": 3})


def test_without_json_it_prints_the_sentence_and_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(lab.app, "run", "rope", "--set", "m=2", capsys=capsys)
    assert " ".join(out.split()).startswith(labs.run("rope", {"m": 2})["text"])
    assert re.search(r"score +0\.8415", out)


def test_the_labs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(said(lab.app, "list", "--json", capsys=capsys)) == {name: labs.default(name) for name in labs.IDS}
    assert "residual-path" in said(lab.app, "list", capsys=capsys)


@pytest.mark.parametrize(
    "words", [("rope", "--set", "m"), ("rope", "--set", "=2"), ("ropes",), ("rope", "--set", "x=1")]
)
def test_a_slip_in_the_terminal_is_an_input_error(words: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        lab.app(["run", *words], result_action="return_value")


def test_the_exercises_are_listed_with_their_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learn.app(["start", "rotate", "--folder", str(tmp_path)], result_action="return_value")
    capsys.readouterr()
    listed = json.loads(said(learn.app, "list", "--folder", str(tmp_path), "--json", capsys=capsys))
    assert [row["id"] for row in listed] == list(IDS)
    assert [row["id"] for row in listed if row["file"]] == ["rotate"]
    assert "rotate.py" in said(learn.app, "list", "--folder", str(tmp_path), capsys=capsys)


def test_an_exercise_is_started_checked_and_solved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--folder", str(tmp_path))
    file = tmp_path / "layer_norm.py"
    with pytest.raises(InputError, match="cutaway learn start layer-norm"):
        learn.app(["check", "layer-norm", *where], result_action="return_value")
    learn.app(["start", "layer-norm", *where], result_action="return_value")
    assert file.read_text() == load("layer-norm").starter
    with pytest.raises(InputError, match="is there already"):
        learn.app(["start", "layer-norm", *where], result_action="return_value")
    with pytest.raises(SystemExit) as ended:
        learn.app(["check", "layer-norm", "--hints", *where], result_action="return_value")
    assert ended.value.code == 1
    assert "not yet" in (shown := capsys.readouterr().out)
    assert load("layer-norm").hints[0] in shown
    file.write_text(load("layer-norm").mistakes[0].code)
    with pytest.raises(SystemExit):
        learn.app(["check", "layer-norm", *where], result_action="return_value")
    assert load("layer-norm").mistakes[0].message in capsys.readouterr().out
    file.write_text(load("layer-norm").solution)
    report = json.loads(said(learn.app, "check", "layer-norm", "--json", *where, capsys=capsys))
    assert report["passed"] is True
    assert report["right"] == report["cases"] == 5


def test_watch_checks_at_every_save_until_it_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exercise = load("rotate")
    file = tmp_path / "rotate.py"
    file.write_text(exercise.mistakes[0].code)

    def finish() -> None:
        time.sleep(1.5)
        file.write_text(exercise.solution)

    editor = threading.Thread(target=finish)
    editor.start()
    learn.app(["watch", "rotate", "--folder", str(tmp_path)], result_action="return_value")
    editor.join()
    shown = capsys.readouterr().out
    assert shown.index(exercise.mistakes[0].message) < shown.index("A rotation: right")


@pytest.mark.parametrize("words", [("start", "nothing"), ("check", "nothing"), ("watch", "nothing")])
def test_an_unknown_exercise_is_an_input_error(words: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="layer-norm"):
        learn.app(list(words), result_action="return_value")


def test_a_file_that_is_no_text_and_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "rotate.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        learn.app(["check", "rotate", "--folder", str(tmp_path)], result_action="return_value")
    with pytest.raises(InputError, match="--folder"):
        learn.app(["start", "rotate", "--folder", str(tmp_path / "none")], result_action="return_value")


def test_the_commands_load_neither_torch_nor_the_server_until_they_run() -> None:
    code = (
        "import sys, cutaway.cli.lab, cutaway.cli.learn\n"
        "cutaway.cli.lab.app(['run', 'mask'], result_action='return_value')\n"
        "sys.exit(sorted({'torch', 'fastapi', 'uvicorn'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen, httpx.Client, str]]:
    """The server in a process of its own, a client that has been let in, and the address without its token."""
    code = "from cutaway.cli.lab import app; app(['--port', '0', '--no-browser'])"
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().removeprefix("Cutaway lab: ").strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{20,}", address)
            with httpx.Client(follow_redirects=True, trust_env=False, timeout=60) as client:
                for _ in range(100):
                    try:
                        let_in = client.get(address)
                        break
                    except httpx.ConnectError:
                        time.sleep(0.1)
                assert let_in.status_code in (200, 503)
                assert str(let_in.url).endswith("/")
                yield process, client, address.partition("/?")[0]
        finally:
            process.kill()


@pytest.mark.skipif(os.name == "nt", reason="SIGINT reaches a child only on POSIX")
def test_the_server_starts_prints_its_address_and_ends_when_interrupted() -> None:
    with started() as (process, client, address):
        assert client.get(f"{address}/api/labs").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(15) in (0, 130, -signal.SIGINT)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="SIGINT reaches a child only on POSIX")
def test_interrupted_at_work_it_ends_without_a_traceback() -> None:
    def train(seed: int) -> int:
        body = {"state": {"seed": seed, "without": "ffn", "heads": 4}}
        try:
            return client.post(f"{address}/api/labs/small-gpt", json=body).status_code
        except httpx.HTTPError:
            return 0

    with started() as (process, client, address), ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(train, seed) for seed in range(4)]
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130, -signal.SIGINT)
        assert {each.result() for each in asked} <= {0, 200, 503}
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_an_address_that_cannot_be_bound_is_an_input_error() -> None:
    with pytest.raises(InputError, match="--port"):
        lab.app(["--host", "192.0.2.1", "--no-browser"], result_action="return_value")
    with pytest.raises(InputError, match="--port"):
        lab.app(["--port", "70000", "--no-browser"], result_action="return_value")
