"""The cases of the source pages, and how an answer is held against one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

SHARED = Path(os.environ.get("CUTAWAY_CASES", Path(__file__).parents[2] / "shared"))
FILE = SHARED / "labs" / "seed_cases.json"
CASES: list[dict[str, Any]] = (
    json.loads(FILE.read_text())["cases"] if FILE.exists() else [{"name": "missing", "op": ""}]
)
IDS = [f"seed_cases:{case['name']}" for case in CASES]


def check(case: dict[str, Any], answer: Any) -> None:
    """Numbers within the case's tolerance, and within the tighter one of its exact value; the rest equal."""
    agree(case["expected"], answer, case["tolerance"])
    if "exact" in case:
        agree(case["exact"], answer, case["exact_tolerance"])


def agree(expected: Any, answer: Any, tolerance: float) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            agree(value, answer[key], tolerance)
    elif isinstance(expected, (str, bool)):
        assert answer == expected and type(answer) is type(expected)
    else:
        assert np.shape(answer) == np.shape(expected)
        np.testing.assert_allclose(answer, expected, rtol=0, atol=tolerance + 1e-15)
