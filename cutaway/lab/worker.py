"""Runs an answer on an exercise's cases and says what came out. `python -I worker.py` does it behind limits.

The process reads one JSON object {code, plan, limits} from its input and writes `result.json` into its folder. It
needs NumPy and the standard library alone, and imports nothing of Cutaway: it is run by its path.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

ANSWER = "<answer>"
RESULT = "result.json"
LARGEST = 20_000
TEXT = 400


def observe(code: str, plan: dict[str, Any]) -> dict[str, Any]:
    """The outcome of each case: {"cases": [{"value"} or {"error"}, and "spied"]}, or {"broken": error}.

    plan: `function` the name to call, `drive` the source of a `drive(function, *args)` that calls it (or ""), `spies`
    names whose last argument is reported, `cases` [{"args", "globals"}] as `encode` writes them.
    """
    namespace: dict[str, Any] = {"__name__": "answer", "np": np}
    try:
        exec(compile(code, ANSWER, "exec"), namespace)  # noqa: S102 - running answers is what this is for
        exec(compile(plan["drive"] or _CALL, "<drive>", "exec"), namespace)  # noqa: S102
    except BaseException as error:  # noqa: BLE001 - exit() in an answer is a result too
        return {"broken": describe(error)}
    if not callable(namespace.get(plan["function"])):
        return {"broken": {"type": "Missing", "text": plan["function"], "line": None}}
    return {"cases": [_case(namespace, plan, case) for case in plan["cases"]]}


_CALL = "def drive(function, *args):\n    return function(*args)\n"


def _case(namespace: dict[str, Any], plan: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    spied: dict[str, Any] = {}
    own = {name: _spy(namespace[name], name, spied) for name in plan["spies"] if callable(namespace.get(name))}
    before = {name: namespace.get(name) for name in [*own, *case["globals"]]}
    namespace.update(own)
    namespace.update({name: decode(value) for name, value in case["globals"].items()})
    try:
        value = namespace["drive"](namespace[plan["function"]], *decode(case["args"]))
        outcome = {"value": encode(value)}
    except BaseException as error:  # noqa: BLE001
        outcome = {"error": describe(error)}
    namespace.update(before)
    return {**outcome, "spied": spied}


def _spy(function: Callable, name: str, spied: dict[str, Any]) -> Callable:
    def spying(*args: Any, **kwargs: Any) -> Any:
        spied[name] = encode(args[0] if args else None)
        return function(*args, **kwargs)

    return spying


def describe(error: BaseException) -> dict[str, Any]:
    """Type, text and the line of the answer where it happened."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == ANSWER]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return {"type": type(error).__name__, "text": text[:TEXT], "line": line}


def encode(value: Any) -> Any:
    """A value as JSON: arrays, tuples and dictionaries by name, so that `decode` gives the same back."""
    match value:
        case None | bool() | str():
            return value
        case int() | float():
            return float(value) if isinstance(value, float) else value
        case np.ndarray() | np.generic():
            return _encode_array(np.asarray(value))
        case tuple() | list():
            return {type(value).__name__ if type(value) in (tuple, list) else "list": [encode(item) for item in value]}
        case dict():
            return {"dict": [[str(key), encode(item)] for key, item in value.items()]}
    return {"other": type(value).__name__}


def _encode_array(array: np.ndarray) -> dict[str, Any]:
    if array.dtype.kind not in "biuf" or array.size > LARGEST:
        return {"other": f"array of {array.dtype}, shape {array.shape}"}
    return {"array": array.tolist(), "shape": list(array.shape), "dtype": array.dtype.str}


def decode(value: Any) -> Any:
    """What `encode` wrote; a value that had no form stays {"other": its type}."""
    match value:
        case {"array": list() | int() | float() as numbers, "shape": shape, "dtype": dtype}:
            return np.array(numbers, dtype=dtype).reshape(shape)
        case {"tuple": items}:
            return tuple(decode(item) for item in items)
        case {"list": items}:
            return [decode(item) for item in items]
        case {"dict": items}:
            return {key: decode(item) for key, item in items}
    return value


_LISTS = ("os.listdir", "os.scandir", "os.chdir", "os.walk")
_CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
            "os.chown", "os.utime", "shutil.", "os.setxattr", "os.removexattr", "os.chflags")  # fmt: skip
_REFUSED = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile",
            "os.kill", "signal.pthread_kill", "ctypes.", "pty.", "webbrowser.", "urllib.", "http.", "ftplib.",
            "smtplib.", "winreg.", "resource.", "sqlite3.")  # fmt: skip
_MODULES = ("_socket", "_ssl", "_posixsubprocess", "_multiprocessing", "_posixshmem", "_sqlite3", "_dbm", "_gdbm",
            "readline", "_curses")  # fmt: skip
_UNWATCHED = ("mkfifo", "mknod", "chroot", "openpty", "setpriority", "pidfd_open", "memfd_create")  # without an event


def confine(folder: str) -> None:
    """From here on: no network, no other program, no write outside the folder, no read outside it and Python's own.

    Two fences. Python's audit hook says in words what is refused, on every system; an answer that takes the running
    interpreter apart can get past it. The kernel's fence (see `fence`), where there is one, holds whatever it does.
    """
    own = (os.path.realpath(folder),)
    python = own + tuple({os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path) if p})
    fence(own[0], python)
    realpath, fsdecode, separator = os.path.realpath, os.fsdecode, os.sep
    for name in _UNWATCHED:
        for module in (os, sys.modules.get("posix"), sys.modules.get("nt")):
            vars(module or os).pop(name, None)

    def outside(path: Any, roots: tuple[str, ...]) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False  # an open file's number, or the current folder
        real = realpath(fsdecode(path))
        return not any(real == root or real.startswith(root + separator) for root in roots)

    def refuse(event: str, args: tuple) -> None:
        if event == "open":
            writes = _writes(args[1], args[2])
            if outside(args[0], own if writes else python):
                raise PermissionError(f"an answer may not {'write' if writes else 'read'} {fsdecode(args[0])}")
        elif event in _LISTS and args and outside(args[0], python):
            raise PermissionError(f"an answer may not look into {fsdecode(args[0])}")
        elif event.startswith(_CHANGES) and any(outside(path, own) for path in args[:2]):
            raise PermissionError("an answer may not change files outside its own folder")
        elif event.startswith(_REFUSED) or (event == "import" and args[0] in _MODULES):
            what = args[0] if event == "import" else event
            raise PermissionError(f"an answer may not use {what}: no network and no other program")

    sys.addaudithook(refuse)


# Landlock, https://docs.kernel.org/userspace-api/landlock.html: the rights that each version of its interface brought.
_FILES = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute (libraries are mapped so), read a file, list a folder
_NET, _SCOPES = {4: 0b11}, {6: 0b11}  # bind and connect; abstract sockets and signals to others
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/local/lib", "/etc/ld.so.cache")


def fence(folder: str, readable: tuple[str, ...]) -> None:
    """The kernel's own fence around this process: nothing but the folder can be written, nothing but it and `readable`
    be read, no TCP, and a network without devices. Linux from 5.13 on; elsewhere nothing happens.
    """
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        version = libc.syscall(444, None, 0, 1)
        libc.unshare(0x10000000 | 0x40000000)  # user and network namespaces of its own, where that is allowed
    except (ImportError, OSError, AttributeError):  # no Linux
        return
    if version < 1:
        return

    def handled(rights: dict[int, int]) -> int:
        return sum(bits for since, bits in rights.items() if since <= version)

    files = handled(_FILES)
    attributes = struct.pack("=QQQ", files, handled(_NET), handled(_SCOPES))[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    rules = libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0)
    for path in (folder, *readable, *_LIBRARIES):
        if os.path.exists(path):
            allowed = files & ~1 if path == folder else files & (_READ if os.path.isdir(path) else 1 << 2)
            place = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
            libc.syscall(445, rules, 1, struct.pack("=Qi", allowed, place), 0)
            os.close(place)
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges, which Landlock asks for
    libc.syscall(446, rules, 0)
    os.close(rules)


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return bool(set(mode) & set("wax+"))
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))


def limit(limits: dict[str, int]) -> None:
    """The operating system's limits on this process, where it has them; `memory` and `file` in bytes, `cpu` seconds."""
    try:
        import resource
    except ImportError:  # Windows: the parent's clock is the only limit
        return
    wanted = {
        resource.RLIMIT_CPU: (limits["cpu"], limits["cpu"] + 1),
        resource.RLIMIT_AS: (limits["memory"],) * 2,
        resource.RLIMIT_FSIZE: (limits["file"],) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_NOFILE: (32, 32),
        resource.RLIMIT_NPROC: (0, 0),
    }
    for kind, value in wanted.items():
        try:
            resource.setrlimit(kind, value)
        except (OSError, ValueError):  # macOS knows no limit of memory
            continue


def main() -> None:
    """The child's life: read, limit, confine, run, report."""
    job = json.loads(sys.stdin.buffer.read())
    report = open(RESULT, "x", encoding="utf-8")  # noqa: SIM115 - opened before the folder is the answer's
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    np.random.default_rng(0).normal()  # NumPy loads this part late
    limit(job["limits"])
    confine(os.getcwd())
    with report:
        json.dump(observe(job["code"], job["plan"]), report)
    sys.stdout.flush()
    os._exit(0)  # whatever threads the answer has started


if __name__ == "__main__":
    main()
