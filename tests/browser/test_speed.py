"""From a slider's step to the new picture: hardly longer than the request itself (see benchmarks/lab.py)."""

from __future__ import annotations

import importlib.util

import pytest

from tests.browser.conftest import ROOT, Go

spec = importlib.util.spec_from_file_location("bench_lab", ROOT / "benchmarks" / "lab.py")
assert spec is not None
assert spec.loader is not None
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


@pytest.mark.slow
@pytest.mark.parametrize("name", bench.LABS)
def test_a_step_of_a_slider_is_drawn_within_two_frames(lab: Go, name: str) -> None:
    page = lab(name)
    page.wait_for_load_state("networkidle")
    ms = bench.measure(page, name)
    print(f"{name}: {ms}")
    assert ms["beyond"] < bench.BUDGET, ms
