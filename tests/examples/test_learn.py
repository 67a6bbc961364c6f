"""The plain loops of `examples/` learn what they say, on rows that they have never seen."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("learn_decoder", "learn_encoder", "learn_encoder_decoder")


def module(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("learn_*.py")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_that_it_is_judged_by_are_held_out(name):
    learn = module(name)

    def sequences(n: int, seed: int) -> set[tuple[int, ...]]:
        """The random ids of each row, what is masked filled in."""
        made = learn.rows(n, seed)
        whole = torch.where(made[1] < 0, *made) if isinstance(made, tuple) else made
        return {tuple(row) for row in whole[:, : learn.N].tolist()}

    held_out = sequences(200, -1)
    assert len(held_out) == 200
    assert not any(held_out & sequences(32 if name != "learn_encoder" else 64, step) for step in range(1501))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_learns_over_99_percent_and_knew_nothing_before(name):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=3000
    )  # a busy machine
    assert done.returncode == 0, done.stderr
    shares = [float(share) for share in re.findall(r"([\d.]+)% right", done.stdout)]
    chance = 100 / (module(name).IDS - 1)
    assert shares[0] < 2 * chance, done.stdout  # untrained
    assert len(shares) >= 4 and shares[-1] > 99, done.stdout
