"""The first configuration of each test runs by default; the others, which the same code reads, with the slow set."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        call = getattr(item, "callspec", None)
        if HERE in item.path.parents and call is not None and any(call.indices.values()):
            item.add_marker(pytest.mark.slow)
