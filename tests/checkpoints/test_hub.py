"""Names on the hub, with the hub's own package standing in."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cutaway import spec
from cutaway.checkpoints import hub
from cutaway.checkpoints.pull import located
from cutaway.errors import CheckpointError
from cutaway.loaded import Loaded, load
from cutaway.models import build


def test_a_name_of_the_hub_is_its_folder(tmp_path, monkeypatch):
    Loaded(build(spec.preset("modern-tiny"), seed=0), None, "").save(tmp_path / "there")
    asked = {}

    def snapshot_download(name, revision, allow_patterns):
        asked[name] = allow_patterns
        return str(tmp_path / "there")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    loaded = load("some-owner/some-model", tokenizer=False)
    assert loaded.spec == spec.preset("modern-tiny")
    assert list(asked) == ["some-owner/some-model"] and "*.safetensors" in asked["some-owner/some-model"]
    assert not any(pattern.endswith((".py", ".bin", ".pkl")) for pattern in hub.FILES)


def test_without_its_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match=r"pip install 'cutaway\[hub\]'"):
        located("owner/model")


def test_what_the_hub_refuses_is_one_line(monkeypatch):
    def snapshot_download(name, revision, allow_patterns):
        raise OSError("401\n  you may not")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    with pytest.raises(CheckpointError, match=r"owner/model: .*401 you may not"):
        located("owner/model")


def test_what_is_here_is_no_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not hub.is_name("a/b") and hub.is_name("a/c") and hub.is_name("a/c@v1.0")
    assert not any(map(hub.is_name, ("smollm2", "/a/b", "a/b/c", "../a", "./b", "gpt2-tiny", "a/c@", "a@b/c")))


COMMIT = "0123456789abcdef0123456789abcdef01234567"
OFFLINE = """
import sys, cutaway
print(cutaway.load(sys.argv[1], tokenizer=False).path)
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("owner/model", True, marks=pytest.mark.slow),
        ("owner/model@main", True),
        pytest.param(f"owner/model@{COMMIT}", True, marks=pytest.mark.slow),
        ("owner/model@v2", False),
    ],
)
def test_the_hubs_own_cache_is_used_offline(name, found, tmp_path):
    home = tmp_path / "models--owner--model"
    snapshot = home / "snapshots" / COMMIT
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    Loaded(build(spec.preset("modern-tiny"), seed=0), None, "").save(snapshot)
    settings = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, name], capture_output=True, text=True, env=os.environ | settings
    )
    assert (done.returncode == 0) is found, done.stderr
    assert done.stdout.strip() == (str(snapshot) if found else "")
    assert found or "check the name and the network" in done.stderr
