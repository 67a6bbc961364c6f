"""Every chapter's program runs on NumPy alone, is short, and prints the numbers that the chapter works with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.lab import course

# What each program must print: numbers that its chapter states.
PRINTED = {
    "embeddings": ["th e (3 times)", "in all 6", "(2, 5, 64)", "28,311,552", "21%", "cosine 0.89", "cosine 0.99"],
    "attention": ["[2.828 1.414 0.   ]", "sum 22.0", "[0.768 0.187 0.045]", "[0.867 0.117 0.016]", "64:  8.08, 1.01"],
    "heads": ["[0.33 0.33 0.33 0.  ]", "row 1: [0.5 0.5 0.  0. ]", "8 heads: d_k 1", "256 parameters"],
    "parts": ["[1.72 0.28]", "[1.78 1.33]", "[ 0.14 -0.99  0.3   0.96", "[-1. -1.  1.  1.]", "[-3. 13.]", "LN 2.83"],
    "whole-model": ["'cat': 0.25", "'cat': 0.87", "loss 0.845", "loss 0.037"],
    "generation": ["[0.88 0.12]", "[0.73 0.27]", "[0.67 0.33 0. ", "'a red' with 0.15", "'the dog' with 0.36"],
    "modern": ["1.058526", "0.8415", "[-0.9045 -0.9045  0.3015  1.5076]", "-0.2689, output -0.5379", "1365"],
    "inference": ["with a cache: 36  without: 120", "23,040", "524,288", "131,072", "134,515,008", "149 tokens"],
    "small-gpt": ["ln V = 2.94", "step 300", "sat on a"],
    "transformers": ["0.6411 -0.49    0.53    1.4996", "0.1495 0.1406 0.6413 0.0687", "40 ids", "rain, 9 °C"],
    "depth": ["plain 4.3e-20", "1.331", "[-1.07 -0.53  0.    1.6 ]", "[0. 0. 0. 0.]"],
    "encoder-decoder": ["la casa roja </s>", "['el', 'rojo', 'casa', '</s>']", "roja roja", "63,045,632"],
}
DEMOS = {level["id"]: course.CONTENT / "demos" / level["demo"] for level in course.course()["levels"]}
ONLY_NUMPY = """\
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cutaway", "torch", "pydantic", "scipy", "pandas"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_each_chapter_has_one() -> None:
    assert set(DEMOS) == set(PRINTED)
    assert all(file.is_file() for file in DEMOS.values())


@pytest.mark.parametrize("level", DEMOS)
def test_it_runs_and_prints_the_chapters_numbers(level: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", ONLY_NUMPY, str(DEMOS[level])]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no warnings either"
    missing = [number for number in PRINTED[level] if number not in done.stdout]
    assert not missing, done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


@pytest.mark.parametrize("level", DEMOS)
def test_it_fits_on_a_page(level: str) -> None:
    lines = DEMOS[level].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert all(len(line) <= 120 for line in lines)
