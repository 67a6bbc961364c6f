"""The plain loop of `examples/learn.py` learns what it says, on rows that it has never seen."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import cutaway

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KINDS = ("decoder", "encoder", "encoder-decoder")


def module(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def learn(monkeypatch):
    """The script as it is run: its tasks stand beside it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "learn_tasks", raising=False)
    yield module("learn")
    sys.modules.pop("learn_tasks")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_it_is_one_loop_of_30_lines(learn):
    assert len((EXAMPLES / "learn.py").read_text(encoding="utf-8").splitlines()) <= 30
    assert tuple(learn.TASKS) == KINDS


def test_the_rows_that_it_is_judged_by_are_held_out():
    tasks = module("learn_tasks")
    held_out = {tuple(row) for row in tasks.random_ids(200, seeded(-1)).tolist()}
    assert len(held_out) == 200
    for step in range(801):
        assert held_out.isdisjoint(map(tuple, tasks.random_ids(64, seeded(step)).tolist()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_asks_for_nothing_that_is_not_told(kind, learn):
    """Each of the 8 ids of a row is a target once, and has been read elsewhere: there alone, but for chance."""
    tasks = sys.modules["learn_tasks"]
    read = []

    class Hears:
        def __call__(self, ids, given=None):
            read.append(ids)
            return torch.zeros(*ids.shape, 16)

        def encode(self, source):
            read.append(source)

    logits, targets = learn.TASKS[kind][1](Hears(), 64, seeded(0))
    assert logits.shape[:2] == targets.shape
    for row, wanted in zip(torch.cat(read, 1).tolist(), targets.tolist(), strict=True):
        asked = [id for id in wanted if id != tasks.IGNORED]
        assert len(asked) == tasks.N and min(asked) > 0
        assert set(asked) <= set(row)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_over_99_percent_and_knew_nothing_before(kind, learn, monkeypatch, capsys):
    built = []
    build = cutaway.build
    monkeypatch.setattr(cutaway, "build", lambda *a, **k: built.append(build(*a, **k)) or built[0], raising=False)
    n_threads = torch.get_num_threads()
    learn.main(kind)
    torch.set_num_threads(n_threads)
    out = capsys.readouterr().out
    shares = [float(share) for share in re.findall(r"([\d.]+)% of new rows right", out)]
    assert len(shares) >= 4 and shares[0] == 0 and shares[-1] > 99, out
    if kind != "encoder":
        _writes(built[0], kind)


def _writes(model, kind):
    """Greedily, row after row, what the shares promise."""
    ids = module("learn_tasks").random_ids(200, seeded(-1))
    prompts = torch.cat((ids, torch.zeros(200, 1, dtype=torch.long)), 1) if kind == "decoder" else ids
    options = cutaway.spec.Generation(max_tokens=8, start_id=0)
    written = torch.tensor(cutaway.generate(model, prompts, options).ids)
    wanted = ids if kind == "decoder" else ids.flip(1)
    assert (written == wanted).all(1).float().mean() > 0.99
