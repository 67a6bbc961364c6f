"""Runs a learner's answer in a fresh local process behind limits, and reports on it; answers can be stopped.

The process is Python in isolated mode with an empty environment, in a folder of its own that is deleted afterwards.
Limits: 5 s of processor, 10 s by the clock, 2 GiB of memory (not on macOS), 1 MiB a file, no network, no other program,
no file outside its folder (see `worker.confine` for the two fences and what each can hold).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.lab import worker
from cutaway.lab.exercises import load
from cutaway.lab.exercises.exercise import Exercise
from cutaway.lab.exercises.judge import Report, judge

LIMITS = {"cpu": 5, "memory": 2 << 30, "file": 1 << 20}
CLOCK = 10
MOST_CODE = 100_000
MOST_OUTPUT = 10_000
MOST_RUNNING = 4
MOST_KEPT = 100
_KEPT_ENVIRONMENT = ("SYSTEMROOT", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "LD_LIBRARY_PATH")


@dataclass
class Job:
    """One run of an answer: `state` is running, done or stopped."""

    exercise: Exercise
    code: str
    state: str = "running"
    report: Report = field(default_factory=lambda: Report(False, []))
    output: str = ""
    _process: subprocess.Popen | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Job:
        """Runs to the end and fills in report and output."""
        with tempfile.TemporaryDirectory(prefix="cutaway-answer-", ignore_cleanup_errors=True) as folder:
            self._execute(Path(folder))
        return self

    def stop(self) -> None:
        """Ends the process; the run is then stopped, not done."""
        with self._lock:
            if self.state == "running":
                self.state = "stopped"
                self.report = Report(False, [self.exercise.words["stopped"]])
            if self._process is not None:
                _kill(self._process)

    def public(self) -> dict[str, Any]:
        """What the page is told."""
        return {
            "state": self.state, "passed": self.report.passed, "messages": self.report.messages,
            "right": self.report.right, "cases": self.report.cases, "stdout": self.output,
        }  # fmt: skip

    def _execute(self, folder: Path) -> None:
        request = {"code": self.code, "plan": self.exercise.plan(), "limits": LIMITS}
        printed = folder / "printed"
        with printed.open("wb") as sink:
            with self._lock:
                if self.state == "stopped":
                    return
                self._process = _start(folder, sink)
            timed_out = _wait(self._process, json.dumps(request).encode())
        report = self._report(folder, timed_out)
        output = _left(printed)[:MOST_OUTPUT].decode(errors="replace")
        with self._lock:
            self.output = output
            if self.state == "running":
                self.state, self.report = "done", report

    def _report(self, folder: Path, timed_out: bool) -> Report:
        code = self._process.returncode if self._process else None
        if timed_out or code in (-getattr(signal, "SIGXCPU", 24), -getattr(signal, "SIGKILL", 9)):
            return Report(False, [self.exercise.words["too_long"].format(seconds=LIMITS["cpu"])])
        try:
            return judge(self.exercise, json.loads(_left(folder / worker.RESULT)))
        except Exception:  # noqa: BLE001 - an answer may have left anything there
            return Report(False, [self.exercise.words["no_result"].format(code=code)])


class Runner:
    """The answers of one server: a few at once, the newest results kept."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, exercise_id: str, code: str) -> str:
        """Starts a run and names it. Raises InputError for code that is too long or while too many run."""
        job = make_job(exercise_id, code)
        with self._lock:
            running = sum(other.state == "running" for other in self._jobs.values())
            if running >= MOST_RUNNING:
                raise InputError(f"exercise {exercise_id}: {running} answers are running; wait for one or stop it")
            while len(self._jobs) >= MOST_KEPT:
                oldest = next(name for name, other in self._jobs.items() if other.state != "running")
                del self._jobs[oldest]
            name = uuid.uuid4().hex
            self._jobs[name] = job
        threading.Thread(target=job.run, name=f"answer-{name}", daemon=True).start()
        return name

    def job(self, name: str) -> Job:
        """The run of that name. Raises InputError where there is none (any more)."""
        with self._lock:
            if name not in self._jobs:
                raise InputError(f"job: there is no run {name[:40]!r} (any more); run the answer again")
            return self._jobs[name]

    def stop_all(self) -> None:
        """Ends whatever runs; for the end of the server."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop()


def make_job(exercise_id: str, code: str) -> Job:
    """A run that has not begun. Raises InputError for an unknown exercise or code that is too long."""
    exercise = load(exercise_id)
    if len(code) > MOST_CODE:
        raise InputError(f"exercise {exercise_id}: the answer has {len(code)} characters; at most {MOST_CODE} are read")
    return Job(exercise, code)


def _start(folder: Path, sink: Any) -> subprocess.Popen:
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "HOME": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-I", "-B", "-X", "utf8", worker.__file__],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=sink,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        close_fds=True,
    )


def _wait(process: subprocess.Popen, request: bytes) -> bool:
    """Hands the request over and waits for the end. True if the clock ran out."""
    try:
        process.communicate(request, timeout=CLOCK)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
        return True
    _kill(process)  # whatever it may have left behind in its group
    return False


def _left(path: Path) -> bytes:
    """What an answer has left in a file; nothing if it has put something else in the file's place."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            return path.read_bytes()
    return b""


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
