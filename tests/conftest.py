"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start: several at once must not fight for cores
torch.set_num_threads(1)
settings.register_profile("cutaway", deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
settings.load_profile("cutaway")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of handed cases: CUTAWAY_CASES, or `shared` beside the checkout."""
    folder = Path(os.environ.get("CUTAWAY_CASES", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.fail(f"no handed cases at {folder}: put them there or set CUTAWAY_CASES")
    return folder


@pytest.fixture(scope="session")
def smollm2():
    """The real model, fetched once."""
    import cutaway

    return cutaway.load("smollm2")
