"""Learners' code in its own process: right answers, and everything that it may not do."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from cutaway.errors import InputError
from cutaway.lab import runner
from cutaway.lab.exercises import IDS, load
from cutaway.lab.runner import Job, Runner, make_job

LAYER_NORM = load("layer-norm")


def ran(code: str) -> Job:
    return make_job("layer-norm", code).run()


@pytest.mark.parametrize("name", IDS)
def test_the_solution_passes_in_its_own_process(name: str) -> None:
    job = make_job(name, load(name).solution).run()
    assert job.public()["passed"], job.report.messages
    assert job.state == "done"


@pytest.mark.parametrize("name", IDS)
def test_a_known_wrong_answer_is_recognised_through_the_process(name: str) -> None:
    mistake = load(name).mistakes[-1]
    assert make_job(name, mistake.code).run().report.messages[0] == mistake.message


def test_what_an_answer_prints_is_shown() -> None:
    job = ran(LAYER_NORM.solution + "print('hello', 1 + 1)\n")
    assert job.report.passed
    assert job.output == "hello 2\n"


@pytest.mark.slow
@pytest.mark.parametrize("code", ["while True: pass", "def layer_norm(x, eps=0):\n    while True: pass"])
def test_an_endless_loop_is_ended_at_the_limit(code: str) -> None:
    began = time.monotonic()
    assert "never ends" in ran(code).report.messages[0]
    assert time.monotonic() - began < runner.CLOCK


def test_an_answer_that_only_sleeps_is_ended_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CLOCK", 1)
    assert "never ends" in ran("import time; time.sleep(60)").report.messages[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not hold the limit of memory")
@pytest.mark.parametrize(
    "code",
    ["x = bytearray(4 << 30)", "def layer_norm(x, eps=0):\n    return np.ones((4 << 30) // 8)", "x = [0] * (4 << 30)"],
)
def test_four_gibibytes_are_refused(code: str) -> None:
    assert "2 GiB" in ran(code).report.messages[0]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open({outside!r}, 'w').write('x')", "may not write"),
        ("open({outside!r}, 'a')", "may not write"),
        ("import os; os.open({outside!r}, os.O_WRONLY | os.O_CREAT)", "may not write"),
        ("import pathlib; pathlib.Path({outside!r}).write_text('x')", "may not write"),
        ("np.save({outside!r}, np.ones(3))", "may not write"),
        ("open('../up.txt', 'w')", "may not write"),
        ("import os; os.symlink({folder!r}, 'link'); open('link/x', 'w')", "may not"),
        ("import os; os.mkdir({outside!r})", "outside its own folder"),
        ("import os; os.rename('printed', {outside!r})", "outside its own folder"),
        ("import os; os.remove({precious!r})", "outside its own folder"),
        ("import shutil; shutil.rmtree({folder!r})", "may not"),
        ("import os; os.chmod({precious!r}, 0)", "outside its own folder"),
        ("print(open({precious!r}).read())", "may not read"),
        ("import os; print(os.listdir({folder!r}))", "may not look into"),
    ],
)
def test_files_outside_its_folder_stay_as_they_are(code: str, said: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    places = {"outside": str(tmp_path / "evil.txt"), "folder": str(tmp_path), "precious": str(precious)}
    job = ran(code.format(**places))
    assert said in job.report.messages[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious.txt"]
    assert precious.read_text() == "precious"
    assert "precious" not in job.output


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "import _socket",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import os; os.kill(os.getppid(), 9)",
        "import ctypes; ctypes.CDLL(None).system(b'true')",
        "import multiprocessing as m; p = m.Process(target=print); p.start()",
        "import _posixsubprocess",
    ],
)
def test_no_network_and_no_other_program(code: str) -> None:
    said = ran(code).report.messages[0]
    assert "may not use" in said, said


#: What no audit event announces, or what tricks the hook that hears them.
UNANNOUNCED = {
    "a pipe": "import os; os.mkfifo({outside!r})",
    "a node": "import os; os.mknod({outside!r})",
    "a database": "import sqlite3; c = sqlite3.connect({outside!r}); c.execute('create table t (x)'); c.commit()",
    "a history": "import readline; readline.write_history_file({outside!r})",
    "shared memory": "import _posixshmem; _posixshmem.shm_open('/cutaway-evil', 66, 0o600)",
    "another realpath": "import os; os.path.realpath = lambda p, **k: os.getcwd(); open({outside!r}, 'w')",
    "another fsdecode": "import os; os.fsdecode = lambda p: os.getcwd(); open({outside!r}, 'w')",
}
#: An answer that takes the interpreter apart: the audit hook is replaced by one that refuses nothing.
UNHOOKED = """
import gc, types
for found in gc.get_objects():
    if isinstance(found, types.FunctionType) and found.__qualname__ == "confine.<locals>.refuse":
        free = found.__code__.co_freevars
        names = ", ".join(free)
        space = {{}}
        exec("def make(" + names + "):\\n def refuse(event, args): (" + names + ")\\n return refuse", space)
        found.__code__ = space["make"](*free).__code__
"""
LANDLOCK = sys.platform.startswith("linux") and tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 7)


@pytest.mark.parametrize("kind", UNANNOUNCED)
def test_ways_around_the_hook_are_closed(kind: str, tmp_path: Path) -> None:
    job = ran(UNANNOUNCED[kind].format(outside=str(tmp_path / "evil")))
    assert "Error" in job.report.messages[0], job.report.messages
    assert list(tmp_path.iterdir()) == []
    assert not Path("/dev/shm/cutaway-evil").exists()


@pytest.mark.skipif(not LANDLOCK, reason="the kernel has no fence of its own")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open({outside!r}, 'w')", "Permission denied"),
        ("print(open({precious!r}).read())", "Permission denied"),
        ("import os; os.remove({precious!r})", "Permission denied"),
        ("import os; os.mkdir({outside!r})", "Permission denied"),
        ("import ctypes; raise OSError(ctypes.CDLL(None).truncate({precious!r}.encode(), 0))", "-1"),
        ("import ctypes; ctypes.CDLL(None).system(b'echo x > {outside}'); raise OSError('tried')", "tried"),
        ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", "Error"),
        ("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))", "Error"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGTERM)", "not permitted"),
    ],
)
def test_without_the_hook_the_kernels_fence_holds(code: str, said: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    places = {"outside": str(tmp_path / "evil.txt"), "precious": str(precious)}
    job = ran((UNHOOKED + code).format(**places))
    assert said in job.report.messages[0], job.report.messages
    assert "an answer may not" not in job.report.messages[0], "the hook was still there, so this shows nothing"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious.txt"]
    assert precious.read_text() == "precious"
    assert "precious" not in job.output


def test_its_own_folder_may_be_written_to_and_is_gone_afterwards() -> None:
    job = ran(LAYER_NORM.solution + "import os\nopen('mine.txt', 'w').write('x')\nprint(os.getcwd())\n")
    assert job.report.passed
    assert not Path(job.output.strip()).exists()


def test_a_file_may_not_grow_without_end() -> None:
    job = ran("open('big', 'wb').write(b'x' * (3 << 20))")
    assert "File too large" in job.report.messages[0]
    loud = ran("print('x' * (3 << 20))")
    assert len(loud.output) <= runner.MOST_OUTPUT


def test_the_environment_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "swordfish")
    job = ran("import os; print(sorted(os.environ), os.environ.get('SECRET_OF_THE_USER'))")
    assert "swordfish" not in job.output
    assert "SECRET" not in job.output


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import os; os._exit(7)",
        "open('result.json', 'w').write('[1, 2')\nimport os; os._exit(0)",
        "open('result.json', 'w').write('{\"cases\": [1, 2, 3, 4, 5]}')\nimport os; os._exit(0)",
        "open('result.json', 'w').write('{\"cases\": [{}, {}, {}, {}, {}]}')\nimport os; os._exit(0)",
        "open('result.json', 'w').write('{\"broken\": 3}')\nimport os; os._exit(0)",
        "open('result.json', 'w').write('[' * 100000)\nimport os; os._exit(0)",
        "import os; os.remove('result.json'); os.mkdir('result.json'); os._exit(0)",
        "import os; os.remove('result.json'); os.mkfifo('result.json'); os._exit(0)",
        "import os; os.remove('printed'); os.mkfifo('printed')",
        "import os; os.remove('printed')",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        pytest.param("import sys; sys.setrecursionlimit(10**7)\ndef f(): return f()\nf()", marks=pytest.mark.slow),
        "def layer_norm(x, eps=0):\n    return type('T', (), {'__array__': lambda s: 1 / 0})()",
        "def layer_norm(x, eps=0):\n    return 10**5000",
        "import json; json.dump = None",
        "import builtins; builtins.compile = None; builtins.len = None",
        "import numpy; numpy.asarray = None\ndef layer_norm(x, eps=0): return x",
        "raise BaseException('\\ud800')",
        "raise KeyboardInterrupt",
        "\ud800",
        "\x00",
        "",
        "(" * 5000,
        "x = " + "1+" * 30000 + "1",
    ],
)
def test_a_spiteful_answer_is_only_a_wrong_answer(code: str) -> None:
    job = ran(code)
    assert job.state == "done"
    assert not job.report.passed
    assert job.report.messages
    assert not any("Traceback" in message for message in job.report.messages)


def test_a_run_can_be_stopped() -> None:
    runs = Runner()
    name = runs.start("layer-norm", "import time; time.sleep(60)")
    job = runs.job(name)
    began = time.monotonic()
    time.sleep(0.4)
    assert job.public()["state"] == "running"
    job.stop()
    assert job.public()["state"] == "stopped"
    assert job._process is not None
    job._process.wait(5)
    assert time.monotonic() - began < 5
    assert job.report.messages == ["Stopped."]


def test_a_run_stopped_before_it_begins_never_begins() -> None:
    job = make_job("layer-norm", "")
    job.stop()
    assert job.run().state == "stopped"
    assert job._process is None


def test_only_a_few_run_at_once_and_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_RUNNING", 2)
    runs = Runner()
    names = [runs.start("layer-norm", "import time; time.sleep(60)") for _ in range(2)]
    with pytest.raises(InputError, match="2 answers are running"):
        runs.start("layer-norm", "")
    runs.stop_all()
    monkeypatch.setattr(runner, "MOST_KEPT", 2)
    newest = runs.start("layer-norm", LAYER_NORM.solution)
    with pytest.raises(InputError, match="no run"):
        runs.job(names[0])
    deadline = time.monotonic() + 20
    while runs.job(newest).public()["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert runs.job(newest).public()["passed"]


def test_an_answer_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="at most 100000"):
        make_job("layer-norm", "x" * 100_001)


def test_nothing_of_a_run_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran("import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\n" + LAYER_NORM.solution)
    assert list(tmp_path.iterdir()) == []
    own = os.getpid()
    children = [
        pid for pid in os.listdir("/proc") if pid.isdigit() and re.search(rf"\) \S {own} ", _stat(pid))
    ] if os.path.isdir("/proc") else []  # fmt: skip
    assert children == []


def _stat(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
